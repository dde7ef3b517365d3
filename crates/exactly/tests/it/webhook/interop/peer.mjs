// Signs or verifies each line of standard input with the libraries of Standard Webhooks, Stripe and GitHub, and says what
// came of it.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { sign as signForGithub } from "@octokit/webhooks-methods";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import Stripe from "stripe";

const stripe = new Stripe("sk_test_none");

const answers = {
  sign: ({ secret, id, timestamp, body }) => new Webhook(secret).sign(id, new Date(timestamp * 1000), body),
  verify: ({ secret, id, timestamp, body, signature }) => {
    const headers = { "webhook-id": id, "webhook-timestamp": String(timestamp), "webhook-signature": signature };
    try {
      new Webhook(secret).verify(body, headers, { jsonParse: false });
      return "verified";
    } catch (error) {
      if (error instanceof WebhookVerificationError) return `refused: ${error.message}`;
      throw error;
    }
  },
  stripe: ({ secret, timestamp, body }) =>
    stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp }),
  github: ({ secret, body }) => signForGithub(secret, body),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const body = Buffer.from(asked.body, "base64").toString();
  console.log(JSON.stringify(await answers[asked.do]({ ...asked, body })));
}
const { version } = JSON.parse(readFileSync("node_modules/standardwebhooks/package.json", "utf8"));
console.log(JSON.stringify(`standardwebhooks ${version}`));

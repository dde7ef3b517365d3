// graphile-worker as a program that the benchmark starts. It says what the programs of the other peers say:
// `fill ORDER` makes the tables and enqueues the jobs; `work ORDER` connects, says `ready`, waits for a line, and works
// until its input ends. Every line that it writes from then on is the number of jobs handled so far, and the first of
// them, a zero, says that it begins to claim.
import { EventEmitter } from "node:events";
import { createInterface } from "node:readline";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const CHUNK = 10_000;
/** How often the count is told. It delays the end of a turn by no more than this. */
const TOLD_EVERY_MS = 5;

const silent = new Logger(() => () => {});
const [what, text] = process.argv.slice(2);
const order = JSON.parse(text);

async function fill({ url, jobs }) {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
  await utils.migrate();
  for (let first = 0; first < jobs; first += CHUNK) {
    const length = Math.min(CHUNK, jobs - first);
    await utils.addJobs(Array.from({ length }, (_, at) => ({ identifier: "noop", payload: { id: first + at } })));
  }
  await utils.release();
}

async function work({ url, settings }) {
  const { connections, ...worker } = settings;
  const pool = await connected(url, connections);
  const lines = createInterface({ input: process.stdin });
  process.stdout.write("ready\n");
  await new Promise((resolve) => lines.once("line", resolve));
  lines.once("close", () => process.exit(0));

  const events = new EventEmitter();
  events.once("worker:getJob:start", () => process.stdout.write("0\n"));
  let handled = 0;
  let told = 0;
  const noop = async () => {
    handled += 1;
  };
  setInterval(() => {
    if (handled !== told) {
      told = handled;
      process.stdout.write(`${told}\n`);
    }
  }, TOLD_EVERY_MS);
  const runner = await run({
    pgPool: pool,
    events,
    logger: silent,
    noHandleSignals: true,
    taskList: { noop },
    preset: { worker },
  });
  await runner.promise;
}

/** A pool whose connections are made before the clock runs. */
async function connected(url, max) {
  const pool = new pg.Pool({ connectionString: url, max });
  // A lost connection fails the query that is on it; without a listener it would end the process.
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const clients = await Promise.all(Array.from({ length: max }, () => pool.connect()));
  clients.forEach((client) => client.release());
  return pool;
}

await (what === "fill" ? fill(order) : work(order));

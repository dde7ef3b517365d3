# Signs or verifies each line of standard input with the library of Standard Webhooks, and says what came of it.
import base64, datetime, json, sys
from importlib.metadata import version
from standardwebhooks import Webhook, WebhookVerificationError

for line in sys.stdin:
    case = json.loads(line)
    library, body = Webhook(case["secret"]), base64.b64decode(case["body"]).decode()
    if case["do"] == "sign":
        at = datetime.datetime.fromtimestamp(case["timestamp"], datetime.timezone.utc)
        said = library.sign(case["id"], at, body)
    else:
        headers = {
            "webhook-id": case["id"],
            "webhook-timestamp": str(case["timestamp"]),
            "webhook-signature": case["signature"],
        }
        try:
            library.verify(body, headers, json_parse=False)
            said = "verified"
        except WebhookVerificationError as error:
            said = "refused: " + str(error)
    print(json.dumps(said), flush=True)
print(json.dumps("standardwebhooks " + version("standardwebhooks")))

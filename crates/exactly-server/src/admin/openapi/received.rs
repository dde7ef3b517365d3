//! Where events of others come in. Not a part of this API: it is on another address, and its senders have no token.

use serde_json::{Value, json};

pub(super) fn path() -> Value {
    let receipt = json!({
        "description": "What became of it.",
        "schema": {"type": "string", "enum": ["deferred", "duplicate", "quarantined", "rejected"]}
    });
    let told = |description: &str| json!({"description": description, "headers": {"Webhook-Receipt": &receipt}});
    let refused = |description: &str| {
        let mut told = told(description);
        told["content"] = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
        told
    };
    json!({
        "servers": [{
            "url": "{address}",
            "description": "Where senders come in: `listen` under `[inbox]`.",
            "variables": {"address": {"default": "http://127.0.0.1:8082"}}
        }],
        "post": {
            "tags": ["inbox"],
            "operationId": "receiveEvent",
            "summary": "Send an event",
            "description": "Signed as its source does: Standard Webhooks, Stripe or GitHub. It is verified, stored and \
                            acknowledged, and then passed on to its service.",
            "security": [],
            "parameters": [{
                "name": "source", "in": "path", "required": true, "description": "Its name in the settings.",
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
            }],
            "requestBody": {
                "required": true,
                "description": "UTF-8, up to 512 KiB, passed on byte for byte.",
                "content": {"application/json": {"schema": {}}}
            },
            "responses": {
                "200": told("It came before, and nothing is passed on a second time."),
                "202": told("It is stored, and is passed on."),
                "400": refused("It, or its id, cannot be read."),
                "401": refused("It cannot be verified, and nothing is kept of it."),
                "404": refused("No events are taken under this name."),
                "408": refused("The body did not arrive within 10 seconds."),
                "409": refused("Its id came before with another body. It is kept for people to look at."),
                "413": refused("The body is over 512 KiB."),
                "503": refused("The store did not answer, or too many requests are under way: send it again.")
            }
        }
    })
}

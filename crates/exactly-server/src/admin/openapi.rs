//! The API's description for machines: `OpenAPI` 3.1.
//!
//! Paths and types describe themselves. What is the same everywhere (problems, the token, the id in a path) and what no
//! type can say (which members go together) is added here, once.

mod received;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};
use utoipa::{OpenApi, PartialSchema};

use super::input::{Actor, IdText, OUTCOME_MAX};
use super::jobs::ask::JobIdText;
use super::problem::Problem;
use super::{deliveries, endpoints, events, health, inbox, jobs, operators, replays, schedules, service};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "exactly",
        description = "For operators and for services in any language: idempotent calls and what people do about them, \
                       idempotency as a service, jobs and schedules, events that go out to endpoints, and events of others \
                       that come in. Every refusal is `application/problem+json`. All of it is on the operators' address, \
                       except where events come in, which has its own."
    ),
    paths(
        health::alive, health::ready, health::metrics,
        operators::list, operators::show, operators::resolve, operators::free, operators::purge, operators::trail,
        jobs::enqueue, jobs::list, jobs::show, jobs::requeue_one, jobs::resolve, jobs::requeue,
        jobs::lanes, jobs::change_lane,
        schedules::list, schedules::show, schedules::put, schedules::pause, schedules::resume, schedules::delete,
        schedules::occurrences,
        events::publish, events::list, events::show,
        endpoints::list, endpoints::create, endpoints::show, endpoints::health, endpoints::change, endpoints::delete,
        endpoints::pause, endpoints::resume, endpoints::disable, endpoints::discard, endpoints::rotate, endpoints::test,
        deliveries::list, deliveries::show, deliveries::retry,
        inbox::list, inbox::show,
        replays::list, replays::start, replays::show, replays::pause, replays::resume, replays::cancel,
        service::begin, service::renew, service::complete, service::abandon, service::lose,
    ),
    components(schemas(Problem, JobIdText)),
    tags(
        (name = "operators", description = "What people do to records. Every action leaves entries in the trail."),
        (name = "calls as a service", description = "A store's steps, for workers in any language."),
        (name = "jobs", description = "Work that outlives the request, run by HTTP and known by its key."),
        (name = "schedules", description = "What is due again and again, in every time zone."),
        (name = "events", description = "What happened, told to every endpoint that wants to know, signed."),
        (name = "endpoints", description = "Who wants to hear of events, and how."),
        (name = "inbox", description = "Events of others, on their way to a service."),
        (name = "replays", description = "Sending again what failed, or all."),
        (name = "health", description = "For probes and scrapers."),
    )
)]
struct Described;

/// Statuses of problems, and when they are answered.
const PROBLEMS: [(&str, &str, &str); 11] = [
    ("400", "Unreadable", "The request cannot be read."),
    ("401", "Unauthorized", "The token is missing or wrong."),
    ("404", "NotFound", "There is nothing of this id or name."),
    ("408", "BodyLate", "The body did not arrive within 10 seconds."),
    (
        "409",
        "Conflict",
        "What it is about is not in a state for this, or has changed meanwhile.",
    ),
    ("413", "BodyTooLarge", "The body is over 2 MiB."),
    ("415", "MediaType", "The body is not application/json."),
    (
        "422",
        "Invalid",
        "The request says something that cannot be; `field` names it.",
    ),
    ("500", "Failed", "A record cannot be read."),
    (
        "501",
        "NoJobs",
        "The store keeps no jobs and no events, or they are turned off.",
    ),
    (
        "503",
        "Unavailable",
        "The store did not answer, or too many requests are under way.",
    ),
];

/// What each operation may be refused with beyond 401 and 503.
const REFUSALS: [(&str, &[&str]); 52] = [
    ("listCalls", &["422", "500"]),
    ("showCall", &["400", "404", "422", "500"]),
    ("resolveCall", &["400", "404", "408", "409", "413", "415", "422", "500"]),
    ("freeCall", &["400", "404", "409", "422", "500"]),
    ("purgeCalls", &["400", "408", "413", "415", "422", "500"]),
    ("readTrail", &["422", "500"]),
    ("beginCall", &["400", "408", "413", "415", "422", "500"]),
    ("renewCall", &["400", "408", "409", "413", "415", "422", "500"]),
    ("completeCall", &["400", "408", "409", "413", "415", "422", "500"]),
    ("abandonCall", &["400", "408", "409", "413", "415", "422", "500"]),
    ("loseCall", &["400", "408", "409", "413", "415", "422", "500"]),
    ("enqueueJobs", &["400", "408", "413", "415", "422", "500", "501"]),
    ("listJobs", &["422", "500", "501"]),
    ("showJob", &["400", "404", "422", "500", "501"]),
    ("requeueJob", &["400", "404", "408", "413", "415", "422", "500", "501"]),
    ("resolveJob", &["400", "404", "408", "413", "415", "422", "500", "501"]),
    ("requeueJobs", &["400", "408", "413", "415", "422", "500", "501"]),
    ("listLanes", &["500", "501"]),
    ("listSchedules", &["500", "501"]),
    ("showSchedule", &["400", "404", "500", "501"]),
    ("putSchedule", &["400", "408", "413", "415", "422", "500", "501"]),
    ("pauseSchedule", &["400", "404", "422", "500", "501"]),
    ("resumeSchedule", &["400", "404", "422", "500", "501"]),
    ("deleteSchedule", &["400", "404", "422", "500", "501"]),
    ("listOccurrences", &["400", "404", "422", "500", "501"]),
    ("changeLane", &["400", "408", "413", "415", "422", "500", "501"]),
    (
        "publishEvents",
        &["400", "408", "409", "413", "415", "422", "500", "501"],
    ),
    ("listEvents", &["422", "500", "501"]),
    ("showEvent", &["400", "404", "422", "500", "501"]),
    ("listEndpoints", &["422", "500", "501"]),
    (
        "createEndpoint",
        &["400", "408", "409", "413", "415", "422", "500", "501"],
    ),
    ("showEndpoint", &["400", "404", "422", "500", "501"]),
    ("showEndpointHealth", &["400", "404", "422", "500", "501"]),
    (
        "changeEndpoint",
        &["400", "404", "408", "413", "415", "422", "500", "501"],
    ),
    ("deleteEndpoint", &["400", "404", "422", "500", "501"]),
    ("pauseEndpoint", &["400", "404", "422", "500", "501"]),
    ("resumeEndpoint", &["400", "404", "422", "500", "501"]),
    ("disableEndpoint", &["400", "404", "422", "500", "501"]),
    ("discardEndpoint", &["400", "404", "422", "500", "501"]),
    (
        "rotateEndpoint",
        &["400", "404", "408", "413", "415", "422", "500", "501"],
    ),
    (
        "testEndpoint",
        &["400", "404", "408", "409", "413", "415", "422", "500", "501"],
    ),
    ("listDeliveries", &["422", "500", "501"]),
    ("showDelivery", &["400", "404", "422", "500", "501"]),
    (
        "retryDelivery",
        &["400", "404", "408", "409", "413", "415", "422", "500", "501"],
    ),
    ("listInbox", &["422", "500", "501"]),
    ("showInbox", &["400", "404", "422", "500", "501"]),
    ("listReplays", &["422", "500", "501"]),
    ("startReplay", &["400", "408", "409", "413", "415", "422", "500", "501"]),
    ("showReplay", &["400", "404", "422", "500", "501"]),
    ("pauseReplay", &["400", "404", "422", "500", "501"]),
    ("resumeReplay", &["400", "404", "422", "500", "501"]),
    ("cancelReplay", &["400", "404", "422", "500", "501"]),
];

/// Whose name the trail keeps.
const AUDITED: [&str; 26] = [
    "showCall",
    "resolveCall",
    "freeCall",
    "purgeCalls",
    "requeueJob",
    "resolveJob",
    "requeueJobs",
    "changeLane",
    "putSchedule",
    "pauseSchedule",
    "resumeSchedule",
    "deleteSchedule",
    "createEndpoint",
    "changeEndpoint",
    "deleteEndpoint",
    "pauseEndpoint",
    "resumeEndpoint",
    "disableEndpoint",
    "discardEndpoint",
    "rotateEndpoint",
    "testEndpoint",
    "retryDelivery",
    "startReplay",
    "pauseReplay",
    "resumeReplay",
    "cancelReplay",
];

/// The document as JSON text.
pub(super) fn document(open_metrics: bool) -> &'static str {
    // One for the life of the process.
    static WITH_TOKEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    static OPEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let cell = if open_metrics { &OPEN } else { &WITH_TOKEN };
    cell.get_or_init(|| described(open_metrics).to_string())
}

pub(super) fn served(document: &'static str) -> Response {
    let mut response = document.into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn described(open_metrics: bool) -> Value {
    let mut document = serde_json::to_value(Described::openapi()).expect("a description is JSON");
    join_inlined(&mut document);
    add_shared(&mut document);
    add_rules(&mut document["components"]["schemas"]);
    add_links(&mut document["paths"]);
    // Nothing has to be said of these but what they are about.
    let bodiless = ["requeueJob", "resolveJob", "retryDelivery"];
    let paths = document["paths"].as_object_mut().expect("there are paths");
    for (path, item) in paths {
        let item = item.as_object_mut().expect("a path has operations");
        for operation in item.values_mut() {
            add_refusals(operation, path, open_metrics);
            if bodiless.iter().any(|id| operation["operationId"] == *id) {
                operation["requestBody"]["required"] = json!(false);
            }
        }
        if path.contains("{id}") {
            item.insert("parameters".to_owned(), json!([{"$ref": "#/components/parameters/Id"}]));
        }
    }
    document["paths"]["/v1/inbox/{source}"] = received::path();
    document
}

/// utoipa writes a text with a description as "this text, and an object with this description", which nothing fits.
fn join_inlined(value: &mut Value) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(join_inlined),
        Value::Object(members) => {
            members.values_mut().for_each(join_inlined);
            let joined = match members.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([Value::Object(schema), Value::Object(about)]) if about.get("type") == Some(&json!("object")) => {
                    let about = about.iter().filter(|(name, _)| *name != "type");
                    schema
                        .iter()
                        .chain(about)
                        .map(|(name, value)| (name.clone(), value.clone()))
                        .collect()
                }
                _ => return,
            };
            *members = joined;
        }
        _ => {}
    }
}

/// Where to go on with what an answer tells.
fn add_links(paths: &mut Value) {
    let id = "$response.body#/id";
    let held = json!({"token": "$response.body#/token", "attempt": "$response.body#/attempt"});
    let with_outcome = json!({
        "token": "$response.body#/token", "attempt": "$response.body#/attempt", "outcome_base64": "MjUwIHF1ZXVlZA=="
    });
    let step = |operation: &str, body: &Value| json!({"operationId": operation, "parameters": {"id": id}, "requestBody": body});
    paths["/v1/calls/begin"]["post"]["responses"]["200"]["links"] = json!({
        "renew": step("renewCall", &held),
        "complete": step("completeCall", &with_outcome),
        "abandon": step("abandonCall", &held),
        "lose": step("loseCall", &held),
        "show": {"operationId": "showCall", "parameters": {"id": id}},
    });
    let first = "$response.body#/calls/0/id";
    paths["/v1/calls"]["get"]["responses"]["200"]["links"] = json!({
        "next": {"operationId": "listCalls", "parameters": {"query.after": "$response.body#/next"}},
        "show": {"operationId": "showCall", "parameters": {"id": first}},
        "free": {"operationId": "freeCall", "parameters": {"id": first}},
        "resolve": {"operationId": "resolveCall", "parameters": {"id": first}},
    });
}

fn add_refusals(operation: &mut Value, path: &str, open_metrics: bool) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let refusals = REFUSALS.iter().find(|(operation, _)| *operation == id);
    let mut statuses: Vec<&str> = refusals.map(|(_, statuses)| statuses.to_vec()).unwrap_or_default();
    match path {
        "/healthz" => {}
        "/readyz" => statuses.push("503"),
        "/metrics" if open_metrics => operation["security"] = json!([]),
        _ => statuses.extend(["401", "503"]),
    }
    // utoipa says "one of nothing" as an empty requirement, which some readers take for "anything".
    if operation["security"] == json!([{}]) {
        operation["security"] = json!([]);
    }
    for (status, name, _) in PROBLEMS.iter().filter(|(status, ..)| statuses.contains(status)) {
        operation["responses"][*status] = json!({"$ref": format!("#/components/responses/{name}")});
    }
    if AUDITED.contains(&id.as_str()) {
        let actor = json!({"$ref": "#/components/parameters/Actor"});
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(actor),
            None => operation["parameters"] = json!([actor]),
        }
    }
}

fn add_shared(document: &mut Value) {
    document["security"] = json!([{"token": []}]);
    let components = &mut document["components"];
    components["securitySchemes"] = json!({"token": {
        "type": "http", "scheme": "bearer",
        "description": "The token that the server was started with: EXACTLY_ADMIN_TOKEN."
    }});
    components["parameters"] = json!({
        "Id": {
            "name": "id", "in": "path", "required": true, "schema": IdText::schema(),
            "description": "The call's id: 64 hex digits.",
            "example": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        },
        "Actor": {
            "name": "x-exactly-actor", "in": "header", "required": false, "schema": Actor::schema(),
            "description": "Who does it, for the trail; `api` unless told otherwise.", "example": "ada@example.org"
        }
    });
    let mut responses = Map::new();
    for (status, name, description) in PROBLEMS {
        let mut response = json!({
            "description": description,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        });
        if status == "503" || status == "409" {
            let header =
                json!({"description": "When to try again, in seconds.", "schema": {"type": "integer", "minimum": 1}});
            response["headers"] = json!({"Retry-After": header});
        }
        if status == "401" {
            response["headers"] = json!({"WWW-Authenticate": {"schema": {"type": "string"}}});
        }
        responses.insert(name.to_owned(), response);
    }
    components["responses"] = Value::Object(responses);
}

/// Which members go together.
fn add_rules(schemas: &mut Value) {
    let absent = |name: &str| json!({"properties": {name: {"type": "null"}}});
    let text = |name: &str| json!({"required": [name], "properties": {name: {"type": "string"}}});
    schemas["Begin"]["oneOf"] = json!([
        {"required": ["fingerprint"], "properties": {"fingerprint": {"type": "string"}, "content": false}},
        {"required": ["content"], "properties": {"fingerprint": {"type": "null"}}},
    ]);
    schemas["Begin"]["properties"]["content"] = json!({
        "description": schemas["Begin"]["properties"]["content"]["description"]
    });
    schemas["HttpAnswer"]["anyOf"] = json!([absent("body"), absent("body_base64")]);
    schemas["HttpAnswer"]["properties"]["headers"] = json!({
        "type": "object",
        "maxProperties": 64,
        "propertyNames": {"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "maxLength": 255},
        "additionalProperties": {"type": "string", "pattern": "^[ -~]*$", "maxLength": 8192}
    });
    schemas["HttpAnswer"]["properties"]["body"]["maxLength"] = json!(OUTCOME_MAX);
    schemas["Resolve"]["oneOf"] = json!([
        {
            "title": "a call over HTTP happened",
            "required": ["answer"],
            "properties": {
                "outcome": {"const": "happened"}, "answer": {"type": "object"},
                "outcome_base64": {"type": "null"}, "keep_ms": false
            }
        },
        {
            "title": "another call happened",
            "required": ["outcome_base64"],
            "properties": {
                "outcome": {"const": "happened"}, "outcome_base64": {"type": "string"}, "answer": {"type": "null"}
            }
        },
        {
            "title": "it did not happen",
            "properties": {
                "outcome": {"const": "did_not_happen"}, "answer": {"type": "null"}, "outcome_base64": {"type": "null"},
                "keep_ms": false
            }
        }
    ]);
    schemas["Resolve"]["examples"] = json!([
        {
            "outcome": "happened", "reason": "the provider shows the charge",
            "answer": {"status": 201, "headers": {"content-type": "application/json"}, "body": "{\"id\":\"rf_1\"}"}
        },
        {"outcome": "did_not_happen"}
    ]);
    schemas["Purge"]["anyOf"] = json!([
        text("operation"),
        text("principal"),
        text("created_before"),
        {"required": ["all"], "properties": {"all": {"const": true}}}
    ]);
    schemas["Purge"]["examples"] = json!([{"operation": "POST /refunds", "created_before": "2026-01-31T00:00:00Z"}]);
}

//! The description says what is there.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::openapi;

fn document() -> Value {
    serde_json::from_str(openapi::document(false)).unwrap()
}

fn each<'a>(value: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                found.push((name, value));
                each(value, found);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|value| each(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut members = Vec::new();
    each(&document, &mut members);
    let references: BTreeSet<_> = members
        .iter()
        .filter(|(name, _)| *name == "$ref")
        .filter_map(|(_, value)| value.as_str())
        .collect();
    assert!(references.len() > 10, "{references:?}");
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn every_operation_says_who_may_and_how_it_fails() {
    let document = document();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| *name != "parameters" && *name != "servers")
        {
            operations += 1;
            let place = format!("{method} {path}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.contains_key("200") || responses.contains_key("201"),
                "{place}"
            );
            assert!(
                operation["operationId"].is_string() && operation["summary"].is_string(),
                "{place}"
            );
            if path == "/v1/inbox/{source}" {
                assert_eq!(operation["security"], serde_json::json!([]), "senders sign instead");
                assert!(item["servers"][0]["url"].is_string(), "it is on an address of its own");
                continue;
            }
            if !path.starts_with("/v1") {
                continue;
            }
            assert!(
                operation["security"].is_null(),
                "{place} needs the token, as everything does"
            );
            for status in ["401", "500", "503"] {
                assert!(responses.contains_key(status), "{place} {status}");
            }
            let has_body = operation["requestBody"].is_object();
            for status in ["413", "415"] {
                assert_eq!(responses.contains_key(status), has_body, "{place} {status}");
            }
            assert_eq!(path.contains("{id}"), item["parameters"].is_array(), "{place}");
        }
    }
    assert_eq!(operations, 56);
    assert_eq!(document["security"], serde_json::json!([{"token": []}]));
}

#[test]
fn what_takes_a_body_takes_nothing_else() {
    let document = document();
    for schema in [
        "Begin",
        "Renew",
        "Complete",
        "Held",
        "Resolve",
        "HttpAnswer",
        "Purge",
        "NewJob",
        "NewJobs",
        "Requeue",
        "RequeueOne",
        "ResolveJob",
        "LaneChange",
        "ScheduleDefinition",
        "SubjectsAt",
        "JobRequest",
        "NewEvent",
        "NewEvents",
        "NewEndpoint",
        "EndpointChange",
        "Rotate",
        "TestEvent",
        "NewReplay",
    ] {
        let schema = &document["components"]["schemas"][schema];
        assert_eq!(schema["additionalProperties"], false, "{schema}");
    }
}

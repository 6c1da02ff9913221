//! What the JSON Schema says of scenarios, as an editor reads it.

use serde_json::{Value, json};
use tenantry_scenarios::{schema, shipped_names, shipped_yaml};

/// Every keyword that constrains a value and that [`fits`] knows; another would be passed over in silence.
const KNOWN: [&str; 18] = [
    "$ref",
    "type",
    "const",
    "enum",
    "oneOf",
    "anyOf",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    // Left to the program, which says more of them than a schema can.
    "pattern",
    "format",
    "$defs",
];

/// Keywords that only describe.
const WORDS: [&str; 7] = [
    "description",
    "default",
    "title",
    "$schema",
    "examples",
    "writeOnly",
    "$comment",
];

/// Whether a value fits a part of a schema, by the keywords that ours has (JSON Schema 2020-12); the first place where
/// it does not.
fn fits(root: &Value, part: &Value, value: &Value, place: &str) -> Result<(), String> {
    let Value::Object(keywords) = part else {
        return match part {
            Value::Bool(true) => Ok(()),
            _ => Err(format!("{place}: nothing fits")),
        };
    };
    for (keyword, rule) in keywords {
        assert!(
            KNOWN.contains(&keyword.as_str()) || WORDS.contains(&keyword.as_str()),
            "{keyword} is new: let the test know it"
        );
        let number = || value.as_f64().zip(rule.as_f64());
        let holds = match keyword.as_str() {
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                fits(root, &root["$defs"][name], value, place)?;
                true
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "number" => value.is_number(),
                    "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
                    other => panic!("{other}"),
                };
                rule.as_array().map_or_else(|| is(rule), |names| names.iter().any(is))
            }
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "oneOf" | "anyOf" => {
                let tried = rule.as_array().unwrap().iter().map(|part| fits(root, part, value, place));
                let tried: Vec<_> = tried.collect();
                let fitting = tried.iter().filter(|one| one.is_ok()).count();
                if fitting == 0 {
                    let why: Vec<String> = tried.into_iter().filter_map(Result::err).collect();
                    return Err(format!("{place}: none of [{}]", why.join("; ")));
                }
                keyword == "anyOf" || fitting == 1
            }
            "properties" => {
                for (key, part) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        fits(root, part, value, &format!("{place}.{key}"))?;
                    }
                }
                true
            }
            "required" => {
                let keys = rule.as_array().unwrap().iter().map(|key| key.as_str().unwrap());
                !value.is_object() || keys.into_iter().all(|key| value.get(key).is_some())
            }
            "additionalProperties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    if part["properties"].get(key).is_none() {
                        fits(root, rule, value, &format!("{place}.{key}"))?;
                    }
                }
                true
            }
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, rule, value, &format!("{place}[{index}]"))?;
                }
                true
            }
            "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= rule.as_u64().unwrap()),
            "minimum" => number().is_none_or(|(value, least)| value >= least),
            "maximum" => number().is_none_or(|(value, most)| value <= most),
            "exclusiveMinimum" => number().is_none_or(|(value, bound)| value > bound),
            "exclusiveMaximum" => number().is_none_or(|(value, bound)| value < bound),
            _ => true,
        };
        if !holds {
            return Err(format!("{place}: {keyword} {rule}, got {value}"));
        }
    }
    Ok(())
}

fn shipped(name: &str) -> Value {
    serde_yaml::from_str(shipped_yaml(name).unwrap()).unwrap()
}

#[test]
fn every_shipped_scenario_fits() {
    let schema = schema();
    let wrong: Vec<String> = shipped_names()
        .into_iter()
        .filter_map(|name| Some(format!("{name}{}", fits(&schema, &schema, &shipped(name), "").err()?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As they are read: what has nothing but defaults, and not what lacks a key.
#[test]
fn a_name_alone_fits_where_it_stands_for_defaults() {
    let schema = schema();
    let with = |input: &str| {
        let mut scenario = shipped("quickstart");
        scenario["workload"]["lengths"] = json!({ "input": input });
        let text = serde_yaml::to_string(&scenario).unwrap();
        let read = tenantry_scenarios::Scenario::from_yaml("a.yaml", &text, &[]);
        (fits(&schema, &schema, &scenario, ""), read.map(drop))
    };
    for alone in ["twitter", "sharegpt"] {
        assert_eq!(with(alone).0, Ok(()), "{alone}");
        with(alone).1.unwrap();
    }
    let (fitting, read) = with("normal");
    assert!(fitting.is_err() && read.is_err(), "{fitting:?}");
}

#[test]
fn what_is_wrong_does_not_fit() {
    let schema = schema();
    let cases: [(&str, Value, &str); 6] = [
        ("/tenants/cuont", json!(3), ".tenants.cuont"),
        ("/systems/0/dtype", json!("f31"), ".systems[0].dtype"),
        (
            "/systems/1/tenant_state",
            json!({"adaptors": {}}),
            ".systems[1].tenant_state",
        ),
        ("/systems/1/tenant_state/adapters/bottlneck", json!(16), "bottlneck"),
        ("/systems/0/pipeline", json!("sychronous"), ".systems[0].pipeline"),
        ("/slo", json!({"at": "p98"}), ".slo"),
    ];
    for (path, value, place) in cases {
        let mut scenario = shipped("quickstart");
        let (parent, key) = path.rsplit_once('/').unwrap();
        scenario.pointer_mut(parent).unwrap()[key] = value;
        let said = fits(&schema, &schema, &scenario, "");
        assert!(
            said.as_ref().is_err_and(|said| said.contains(place)),
            "{path}: {said:?}"
        );
    }
}

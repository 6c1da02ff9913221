//! The form of a profile's tables, for tools that check CSV by one: a Data Package (datapackage.org, version 2.0).

use serde::Serialize;

use crate::cells::Field;
use crate::family::Family;
use crate::rows::Row;
use crate::tables::{Tables, for_each_family};

const PROFILE: &str = "https://datapackage.org/profiles/2.0/datapackage.json";

/// What cells of a type may hold, in the words of Table Schema.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Form {
    #[serde(rename = "type")]
    kind: &'static str,
    constraints: Constraints,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Constraints {
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusive_minimum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<Number>,
    #[serde(rename = "enum", skip_serializing_if = "<[_]>::is_empty")]
    names: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Real(f64),
}

impl Form {
    fn new(kind: &'static str, constraints: Constraints) -> Form {
        let constraints = Constraints {
            required: true,
            ..constraints
        };
        Form { kind, constraints }
    }

    /// One of these names; any where none is given.
    pub fn text(names: &'static [&'static str]) -> Form {
        let constraints = Constraints {
            names,
            ..Constraints::default()
        };
        Form::new("string", constraints)
    }

    /// `true` or `false`.
    pub fn switch() -> Form {
        Form::new("boolean", Constraints::default())
    }

    /// From 1 on.
    pub fn whole(maximum: u64) -> Form {
        let constraints = Constraints {
            minimum: Some(1),
            maximum: Some(Number::Whole(maximum)),
            ..Constraints::default()
        };
        Form::new("integer", constraints)
    }

    /// The same of a whole number, or none.
    pub fn or_zero(mut self) -> Form {
        self.constraints.minimum = Some(0);
        self
    }

    /// More than 0.
    pub fn above_zero(maximum: f64) -> Form {
        let constraints = Constraints {
            exclusive_minimum: Some(0.0),
            maximum: Some(Number::Real(maximum)),
            ..Constraints::default()
        };
        Form::new("number", constraints)
    }
}

/// A column of a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Column {
    pub name: &'static str,
    description: &'static str,
    #[serde(flatten)]
    form: Form,
}

impl Column {
    pub fn of<T: Field>(name: &'static str, description: &'static str) -> Column {
        Column {
            name,
            description: description.trim(),
            form: T::form(),
        }
    }
}

/// The form of all tables that a profile may have.
#[derive(Clone, Debug, Serialize)]
pub struct TableForms {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'static str,
    resources: Vec<Resource>,
}

/// A file of a profile.
#[derive(Clone, Debug, Serialize)]
struct Resource {
    name: &'static str,
    path: String,
    description: &'static str,
    format: &'static str,
    mediatype: &'static str,
    encoding: &'static str,
    schema: TableSchema,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TableSchema {
    fields: Vec<Column>,
    primary_key: Vec<&'static str>,
}

impl TableForms {
    /// Of every op family. A profile has the files of some.
    pub fn all() -> TableForms {
        let mut resources = Vec::new();
        for_each_family!(shared &Tables::default(), rows => resources.push(resource(rows)));
        TableForms {
            schema: PROFILE,
            name: "tenantry-profile",
            resources,
        }
    }
}

fn resource<R: Row>(_: &[R]) -> Resource {
    let family: Family = R::FAMILY;
    let keys = R::keys();
    let primary_key = keys.iter().map(|column| column.name).collect();
    Resource {
        name: family.name(),
        path: family.file(),
        description: R::DESCRIPTION.trim(),
        format: "csv",
        mediatype: "text/csv",
        encoding: "utf-8",
        schema: TableSchema {
            fields: [keys, crate::stats::columns()].concat(),
            primary_key,
        },
    }
}

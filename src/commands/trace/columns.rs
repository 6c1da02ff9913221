//! `--columns`: which columns of any CSV are a request's.

use tenantry_profiles::did_you_mean;
use tenantry_traces::TraceError;
use tenantry_traces::read::{Columns, Format, Instants};

use crate::failure::Failure;

const OURS: [&str; 5] = ["arrival", "tenant", "input_tokens", "output_tokens", "class"];
const EXAMPLE: &str = "arrival=time_ms:ms,tenant=customer,input_tokens=prompt_len,output_tokens=completion_len";

/// `OUR=THEIRS[:UNIT]`, separated by commas. Theirs may stand in double quotes, as in a CSV: with commas, and quotes
/// doubled.
pub fn parse(text: &str) -> Result<Columns, Failure> {
    let wrong = |message: String| Failure::BadInput(format!("--columns: {message}"));
    let mut columns = Columns::default();
    let mut seen: Vec<&str> = Vec::new();
    // A quote opens a name at its beginning only, and two in one are one of the name's.
    let (mut is_quoted, mut last) = (false, ' ');
    let parts: Vec<&str> = {
        text.split(|c: char| {
            is_quoted ^= c == '"' && (is_quoted || ['=', '"'].contains(&last));
            last = if c.is_whitespace() { last } else { c };
            c == ',' && !is_quoted
        })
    }
    .collect();
    if is_quoted {
        return Err(wrong(format!("must have a second quote after each first, got {text}")));
    }
    for part in parts {
        let Some((ours, theirs)) = part.split_once('=') else {
            return Err(wrong(format!(
                "must be OUR=THEIRS[:UNIT] separated by commas, such as {EXAMPLE}, got {part}"
            )));
        };
        let (ours, theirs) = (ours.trim(), theirs.trim());
        if seen.contains(&ours) {
            return Err(wrong(format!("must name {ours} once, got it twice")));
        }
        seen.push(ours);
        if theirs.is_empty() {
            return Err(wrong(format!("{ours}: must be a column of the file, got none")));
        }
        let name = unquoted(theirs);
        match ours {
            "arrival" => columns.arrival = Some(arrival(theirs).map_err(wrong)?),
            "tenant" => columns.tenant = Some(name),
            "input_tokens" => columns.input_tokens = Some(name),
            "output_tokens" => columns.output_tokens = Some(name),
            "class" => columns.class = Some(name),
            _ => {
                let meant = did_you_mean(ours, OURS);
                return Err(wrong(format!(
                    "must be of {} on the left, got {ours}{meant}",
                    OURS.join(", ")
                )));
            }
        }
    }
    Ok(columns)
}

fn arrival(theirs: &str) -> Result<(String, Instants), String> {
    let units = || {
        let numbers: Vec<&str> = Instants::ALL.map(Instants::name)[..4].to_vec();
        format!(
            "{} for numbers, or iso for dates with a time of day",
            numbers.join(", ")
        )
    };
    let Some((name, unit)) = theirs.rsplit_once(':') else {
        return Err(format!(
            "arrival: must have its unit ({}), such as arrival={theirs}:ms, got {theirs}",
            units()
        ));
    };
    let found = Instants::ALL.into_iter().find(|instants| instants.name() == unit);
    let instants = found.ok_or_else(|| {
        let meant = did_you_mean(unit, Instants::ALL.map(Instants::name));
        format!("arrival: must have a unit of {}, got {unit}{meant}", units())
    })?;
    Ok((unquoted(name), instants))
}

/// A column's name without the quotes that it may stand in.
fn unquoted(name: &str) -> String {
    let inner = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or(name.to_owned(), |inner| inner.replace("\"\"", "\""))
}

/// A column's name as [`parse`] takes it.
fn quoted(name: &str) -> String {
    match name.contains([',', '"']) || name.trim() != name {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    }
}

/// What is wrong with a file that is read so.
pub fn failure(error: TraceError) -> Failure {
    let meant = match &error {
        TraceError::NoColumn { columns, .. } if matches!(&columns[..], [one] if one.contains([';', '\t'])) => {
            "; a CSV's columns must be separated by commas".to_owned()
        }
        TraceError::NoColumn { name, columns, .. } => did_you_mean(name, columns.iter().map(String::as_str)),
        _ => String::new(),
    };
    let flag = if matches!(error, TraceError::NoColumn { .. }) {
        "--columns: "
    } else {
        ""
    };
    Failure::BadInput(format!("{flag}{error}{meant}"))
}

/// What is said of columns that a format does not read; of a tenant's, how it is read.
pub fn left_out(file: &str, format: Format, unread: &[String]) -> Option<String> {
    /// Of so many, the others are told by their number.
    const SHOWN: usize = 8;
    if unread.is_empty() {
        return None;
    }
    let shown: Vec<String> = unread.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = match unread.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let tenant = unread.iter().find(|name| {
        let name = name.to_lowercase();
        ["tenant", "tenant_id", "tenantid"].contains(&name.as_str())
    });
    let way = tenant.and_then(|tenant| {
        // Where an output of 0 is a failure, a mapping would make answers of those.
        let mapping = mapping(format, tenant).filter(|_| !format.has_failures())?;
        Some(format!(
            "; tenantry trace convert {file} OUT --columns '{mapping}' reads `{tenant}`"
        ))
    });
    Some(format!(
        "columns that {} has no place for are left out: {}{more}{}",
        format.name(),
        shown.join(", "),
        way.unwrap_or_default()
    ))
}

/// What reads a known format's columns, and a tenant's beside them.
fn mapping(format: Format, tenant: &str) -> Option<String> {
    let columns = format.columns()?;
    let arrival = columns.arrival;
    let parts = [
        arrival.map(|(name, instants)| format!("arrival={name}:{}", instants.name())),
        Some(format!("tenant={}", quoted(tenant))),
        columns.input_tokens.map(|name| format!("input_tokens={name}")),
        columns.output_tokens.map(|name| format!("output_tokens={name}")),
    ];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_read_with_its_unit() {
        let columns = parse(EXAMPLE).unwrap();
        assert_eq!(columns.arrival, Some(("time_ms".into(), Instants::Milliseconds)));
        assert_eq!(columns.tenant.as_deref(), Some("customer"));
        assert_eq!(
            columns.named().collect::<Vec<_>>(),
            ["time_ms", "customer", "prompt_len", "completion_len"]
        );
        let inch = parse("tenant=5\" disk,input_tokens= \"a, \"\"b\"\"\"").unwrap();
        assert_eq!(inch.named().collect::<Vec<_>>(), ["5\" disk", "a, \"b\""]);
        let open = parse("tenant=\"a,input_tokens=n").unwrap_err().to_string();
        assert!(open.contains("must have a second quote after each first"), "{open}");
        let spaced = parse("arrival = sent at:utc:iso, input_tokens = n").unwrap();
        assert_eq!(spaced.arrival, Some(("sent at:utc".into(), Instants::Iso)));
        assert_eq!(spaced.input_tokens.as_deref(), Some("n"));
    }

    /// Whatever a column is called, its name in quotes is read as it is.
    #[test]
    fn names_in_quotes_may_have_commas_and_quotes() {
        let text = r#"arrival="time, sent":ms,tenant="a ""big"" one",input_tokens = "n, in" ,output_tokens=out"#;
        let columns = parse(text).unwrap();
        assert_eq!(columns.arrival, Some(("time, sent".into(), Instants::Milliseconds)));
        assert_eq!(
            columns.named().collect::<Vec<_>>(),
            ["time, sent", "a \"big\" one", "n, in", "out"]
        );
        for name in ["plain", "a, b", "\"", "a \"b\", c"] {
            let columns = parse(&format!("class=c,tenant={},input_tokens=n", quoted(name))).unwrap();
            assert_eq!(columns.tenant.as_deref(), Some(name));
        }
    }

    #[test]
    fn what_is_wrong_with_a_mapping_is_said() {
        for (text, message) in [
            ("", "--columns: must be OUR=THEIRS[:UNIT] separated by commas"),
            ("tenant", "got tenant"),
            ("tenant=", "--columns: tenant: must be a column of the file, got none"),
            ("tenant=a,tenant=b", "--columns: must name tenant once, got it twice"),
            (
                "input_token=a",
                "--columns: must be of arrival, tenant, input_tokens, output_tokens, class on the left, got \
                 input_token; did you mean input_tokens?",
            ),
            (
                "arrival=t",
                "--columns: arrival: must have its unit (ns, us, ms, s for numbers, or iso for dates with a time of \
                 day), such as arrival=t:ms, got t",
            ),
            ("arrival=t:sm", "got sm; did you mean"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    /// What the note tells to do, `parse` takes.
    #[test]
    fn a_tenants_column_beside_a_known_format_is_reason_to_map() {
        let names = ["region".to_owned(), "Tenant".to_owned()];
        let note = left_out("a.csv", Format::AzureLlm, &names).unwrap();
        let mapping = note.split('\'').nth(1).unwrap();
        let columns = parse(mapping).unwrap();
        assert_eq!(columns.arrival, Some(("TIMESTAMP".into(), Instants::Iso)));
        assert_eq!(columns.tenant.as_deref(), Some("Tenant"));
        assert_eq!(columns.output_tokens.as_deref(), Some("GeneratedTokens"));
        let without = left_out("a.csv", Format::AzureLlm, &names[..1]).unwrap();
        assert!(!without.contains("--columns"), "{without}");
        assert_eq!(left_out("a.csv", Format::AzureLlm, &[]), None);
    }
}

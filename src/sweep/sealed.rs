//! A JSON object in a file that says by itself whether anybody changed it since.

/// Comes after all other fields.
const DIGEST: &str = ",\"blake3\":\"";

/// The object `body`, of at least one field, with one more: the digest of `body`.
pub fn sealed(body: &str) -> String {
    let open = body.strip_suffix('}').expect("an object");
    format!("{open}{DIGEST}{}\"}}\n", blake3::hash(body.as_bytes()).to_hex())
}

/// The object of which [`sealed`] made `text`; nothing where anything of it was changed.
pub fn unsealed(text: &str) -> Option<String> {
    let (open, _) = text.rsplit_once(DIGEST)?;
    let body = format!("{open}}}");
    (sealed(&body) == text).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_changed_is_seen() {
        let body = r#"{"p98":12.5,"said":"the digest, \"blake3\":\"0\"}"}"#;
        let text = sealed(body);
        assert_eq!(unsealed(&text).as_deref(), Some(body));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["blake3"].as_str().map(str::len), Some(64));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            assert_eq!(unsealed(&String::from_utf8_lossy(&changed)), None, "at {at}");
            assert_eq!(unsealed(&text[..at]), None, "up to {at}");
        }
        assert_eq!(unsealed(""), None);
    }
}

//! Labelled items: what classifiers are judged, calibrated and profiled on.

use std::path::Path;

use csv::StringRecord;
use tenantry_profiles::did_you_mean;

use super::config::Answer;
use super::text::Texts;
use crate::error::ExecutorError;
use crate::files::hash_file;

/// What is right for an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    /// The class, by its place among the head's.
    Class(usize),
    /// The number.
    Number(f32),
}

/// One line of a labelled CSV.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What is asked.
    pub texts: Texts,
    /// What is right.
    pub label: Label,
}

/// Reads a CSV with the columns `text`, `label` and, where items are pairs of texts, `text_pair`. A label is a class's
/// name or number as the head counts them, or for a regression a number.
///
/// # Errors
/// A file that cannot be read, lacks a column, has one twice or has no items; a label that the head does not have, or
/// an empty text.
pub fn read_items(path: &Path, answer: &Answer) -> Result<Vec<Item>, ExecutorError> {
    let wrong = |field: String, must: String, got: String| ExecutorError::checkpoint(path, field, must, got);
    let broken = |error: csv::Error| {
        let said = error.to_string();
        let at = |pos: Option<csv::Position>| pos.map_or("table".into(), |pos| format!("line {}", pos.line()));
        match error.into_kind() {
            csv::ErrorKind::Io(source) => ExecutorError::file(path)(source),
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
                let must = format!("{expected_len} columns, as the first line has");
                wrong(at(pos), must, len.to_string())
            }
            csv::ErrorKind::Utf8 { pos, .. } => wrong(at(pos), "UTF-8".into(), "other bytes".into()),
            _ => wrong("table".into(), "a CSV".into(), said),
        }
    };
    let mut reader = csv::Reader::from_path(path).map_err(broken)?;
    let header = reader.headers().map_err(broken)?.clone();
    // Which of two columns of one name is meant, nobody knows.
    let column = |name: &str| {
        let mut found = (0..header.len()).filter(|&at| &header[at] == name);
        match (found.next(), found.count()) {
            (first, 0) => Ok(first),
            (_, others) => Err(wrong(
                "columns".into(),
                format!("one `{name}`"),
                (others + 1).to_string(),
            )),
        }
    };
    let needed = |name: &str| {
        let got = header.iter().collect::<Vec<_>>().join(",");
        column(name)?.ok_or_else(|| {
            wrong(
                "columns".into(),
                format!("text, label and perhaps text_pair; `{name}` is missing"),
                got,
            )
        })
    };
    let (text, label, pair) = (needed("text")?, needed("label")?, column("text_pair")?);
    let mut items = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let line = record.position().map_or(0, csv::Position::line);
        let at = |column: &str| format!("line {line}: {column}");
        let field = |record: &StringRecord, column: usize, name: &str| {
            let field = record.get(column).unwrap_or_default();
            let words = field.split_whitespace().next().is_some();
            words.then(|| field.to_owned()).ok_or_else(|| wrong(at(name), "text".into(), "nothing".into()))
        };
        items.push(Item {
            texts: Texts {
                first: field(&record, text, "text")?,
                second: pair.map(|column| field(&record, column, "text_pair")).transpose()?,
            },
            label: answer
                .parse(record.get(label).unwrap_or_default())
                .map_err(|(must, got)| wrong(at("label"), must, got))?,
        });
    }
    if items.is_empty() {
        return Err(wrong("table".into(), "items".into(), "only a first line".into()));
    }
    Ok(items)
}

/// A hash of a file of items, by which outputs on the same items are known.
///
/// # Errors
/// A file that cannot be read.
pub fn hash_items(path: &Path) -> Result<String, ExecutorError> {
    let mut hasher = blake3::Hasher::new();
    hash_file(path, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Writes items as [`read_items`] reads them, classes by name; whole or not at all.
///
/// # Errors
/// A file that cannot be written.
///
/// # Panics
/// If a label is not of `answer`'s kind.
pub fn write_items(path: &Path, items: &[Item], answer: &Answer) -> Result<(), ExecutorError> {
    let pairs = items.iter().any(|item| item.texts.second.is_some());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let columns = ["text", "text_pair", "label"];
    let chosen = |row: [&str; 3]| {
        row.into_iter()
            .enumerate()
            .filter(|(index, _)| pairs || *index != 1)
            .map(|(_, field)| field.to_owned())
            .collect::<Vec<_>>()
    };
    let in_memory = "a vector takes what is written";
    writer.write_record(chosen(columns)).expect(in_memory);
    for Item { texts, label } in items {
        let label = match (label, answer) {
            (Label::Class(class), Answer::Class(names)) => names[*class].clone(),
            (Label::Number(number), Answer::Number) => number.to_string(),
            _ => panic!("labels are of the answer's kind"),
        };
        let row = [
            texts.first.as_str(),
            texts.second.as_deref().unwrap_or_default(),
            &label,
        ];
        writer.write_record(chosen(row)).expect(in_memory);
    }
    crate::host::write_whole(path, &writer.into_inner().expect(in_memory))
}

impl Answer {
    /// The label that a field names, or what it must be and what it is.
    fn parse(&self, field: &str) -> Result<Label, (String, String)> {
        let field = field.trim();
        match self {
            Answer::Number => {
                let number = field.parse().ok().filter(|number: &f32| number.is_finite());
                number.map(Label::Number).ok_or_else(|| ("a number".into(), field.into()))
            }
            Answer::Class(names) => {
                let named = names.iter().position(|name| name == field);
                // Where classes are called by other numbers, as by stars from 1 on, a number is a name: it would be one
                // class for some items and its neighbour for others.
                let mut by_place = names.iter().enumerate();
                let numbers_are_names =
                    by_place.any(|(class, name)| name.parse().is_ok_and(|number: usize| number != class));
                let numbered = || field.parse().ok().filter(|&class| !numbers_are_names && class < names.len());
                let class = named.or_else(numbered);
                class.map(Label::Class).ok_or_else(|| {
                    let list = names.join(", ");
                    let hint = did_you_mean(field, names.iter().map(String::as_str));
                    let or = match numbers_are_names {
                        true => String::new(),
                        false => format!(" or 0 to {}", names.len() - 1),
                    };
                    let must = format!("one of the head's {} classes ({list}){or}", names.len());
                    (must, format!("{field}{hint}"))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Answer {
        Answer::Class(vec!["negative".into(), "positive".into()])
    }

    fn read(text: &str, answer: &Answer) -> Result<Vec<Item>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items.csv");
        std::fs::write(&path, text).unwrap();
        read_items(&path, answer).map_err(|error| error.to_string().split_once("items.csv: ").unwrap().1.to_owned())
    }

    #[test]
    fn labels_are_names_or_numbers() {
        let items = read("label,text\npositive,\"good, very\"\n0,bad\n", &classes()).unwrap();
        assert_eq!((items[0].label, items[1].label), (Label::Class(1), Label::Class(0)));
        assert_eq!(items[0].texts, Texts::one("good, very"));
        // Stars: 1 is the first class's name, and no class of this number.
        let stars = Answer::Class(vec!["1".into(), "2".into()]);
        let items = read("label,text\n1,bad\n2,good\n", &stars).unwrap();
        assert_eq!((items[0].label, items[1].label), (Label::Class(0), Label::Class(1)));
        let refused = read("label,text\n1,bad\n0,worse\n", &stars).unwrap_err();
        assert!(
            refused.ends_with("must be one of the head's 2 classes (1, 2), got 0; did you mean 1?"),
            "{refused}"
        );
        let items = read("text,text_pair,label\na,b,3.5\n", &Answer::Number).unwrap();
        assert_eq!(
            (items[0].label, items[0].texts.second.as_deref()),
            (Label::Number(3.5), Some("b"))
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("items.csv");
        for second in [None, Some("said \"so\"".to_owned())] {
            let texts = Texts {
                first: "a, b".into(),
                second,
            };
            let items = vec![
                Item {
                    texts: texts.clone(),
                    label: Label::Class(1),
                },
                Item {
                    texts,
                    label: Label::Class(0),
                },
            ];
            write_items(&path, &items, &classes()).unwrap();
            assert_eq!(read_items(&path, &classes()).unwrap(), items);
        }
    }

    #[test]
    fn what_does_not_fit_the_head_is_refused() {
        for (text, message) in [
            (
                "text,label\na,positve\n",
                "line 2: label: must be one of the head's 2 classes (negative, positive) or 0 to 1, got positve; did \
                 you mean positive?",
            ),
            (
                "text,label\na,1\nb,2\n",
                "line 3: label: must be one of the head's 2 classes (negative, positive) or 0 to 1, got 2",
            ),
            ("text,label\n \t,1\n", "line 2: text: must be text, got nothing"),
            (
                "sentence,label\na,1\n",
                "columns: must be text, label and perhaps text_pair; `text` is missing, got sentence,label",
            ),
            (
                "text,label\na,1\nb,1,more\n",
                "line 3: must be 2 columns, as the first line has, got 3",
            ),
            ("text,label,label\na,1,0\n", "columns: must be one `label`, got 2"),
            (
                "text,text_pair,label,text_pair\na,b,1,c\n",
                "columns: must be one `text_pair`, got 2",
            ),
            ("text,label\n", "table: must be items, got only a first line"),
        ] {
            assert_eq!(read(text, &classes()).unwrap_err(), message);
        }
        assert_eq!(
            read("text,label\na,high\n", &Answer::Number).unwrap_err(),
            "line 2: label: must be a number, got high"
        );
    }
}

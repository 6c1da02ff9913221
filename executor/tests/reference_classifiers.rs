//! Classification and regression heads, and the attention that tokens receive, against Hugging Face's: same folder,
//! same input, same logits and same sums.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use tch::Device;
use tenantry_executor::cascade::{Answer, Classified, Classifier, TextTokenizer, Texts, Tokens};
use tenantry_profiles::DType;

fn fixture(name: &str) -> PathBuf {
    let folder = "tests/fixtures/tiny_classifiers";
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name)
}

struct Expected {
    texts: Vec<Tokens>,
    logits: Vec<Vec<f32>>,
    importance: Vec<Vec<f32>>,
}

fn expected(folder: &Path) -> Expected {
    let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let rows = |name: &str| file.tensor(name).unwrap().shape()[0];
    let whole = |name: &str| -> Vec<i64> {
        let numbers = file.tensor(name).unwrap().data().chunks(8);
        numbers.map(|number| i64::from_le_bytes(number.try_into().unwrap())).collect()
    };
    let floats = |name: &str| -> Vec<Vec<f32>> {
        let numbers = file.tensor(name).unwrap().data().chunks(4);
        let flat: Vec<f32> = numbers.map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect();
        flat.chunks(flat.len() / rows(name)).map(<[f32]>::to_vec).collect()
    };
    let (ids, segments, lengths) = (whole("ids"), whole("segments"), whole("lengths"));
    let width = ids.len() / lengths.len();
    let text = |((ids, segments), &length): ((&[i64], &[i64]), &i64)| {
        let length = length as usize;
        Tokens {
            ids: ids[..length].to_vec(),
            segments: segments[..length].to_vec(),
            places: vec![None; length],
            read: vec![0],
        }
    };
    Expected {
        texts: ids.chunks(width).zip(segments.chunks(width)).zip(&lengths).map(text).collect(),
        logits: floats("logits"),
        importance: floats("importance"),
    }
}

fn close(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 2e-5, "{name}: {found} instead of {expected}");
    }
}

/// XLM-RoBERTa's files have RoBERTa's tensors under RoBERTa's names.
#[test]
fn xlm_roberta_is_read_as_roberta() {
    let roberta = fixture("roberta");
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(roberta.join("config.json")).unwrap();
    let renamed = config.replace("\"roberta\"", "\"xlm-roberta\"");
    assert_ne!(renamed, config);
    std::fs::write(folder.path().join("config.json"), renamed).unwrap();
    std::fs::copy(
        roberta.join("model.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let Expected { texts, logits, .. } = expected(&roberta);
    let classifier = Classifier::read(folder.path(), DType::F32, Device::Cpu).unwrap();
    let batch: Vec<&Tokens> = texts.iter().collect();
    let found = classifier.classify(&batch, false).unwrap().logits;
    for (row, (found, expected)) in found.iter().zip(&logits).enumerate() {
        close(&format!("logits of {row}"), found, expected);
    }
}

/// ALBERT from text to logits: SentencePiece's unigrams, which know a word by the space before it, double spaces,
/// accents and capitals.
#[test]
fn texts_are_tokenized_and_classified_as_the_reference_does() {
    let folder = fixture("albert");
    let classifier = Classifier::read(&folder, DType::F32, Device::Cpu).unwrap();
    let shape = &classifier.config().shape;
    let path = folder.join("tokenizer.json");
    let tokenizer = TextTokenizer::read(&path, shape.positions, shape.vocabulary).unwrap();
    let written = std::fs::read_to_string(folder.join("texts.json")).unwrap();
    let written: Vec<serde_json::Value> = serde_json::from_str(&written).unwrap();
    assert_eq!(written.len(), 3);
    for expected in &written {
        let texts = Texts {
            first: expected["first"].as_str().unwrap().into(),
            second: expected["second"].as_str().map(str::to_owned),
        };
        let tokens = tokenizer.encode(&texts).unwrap();
        assert_eq!(serde_json::json!(tokens.ids), expected["ids"], "{texts:?}");
        assert_eq!(serde_json::json!(tokens.segments), expected["segments"], "{texts:?}");
        let found = &classifier.classify(&[&tokens], false).unwrap().logits[0];
        let logits: Vec<f32> = serde_json::from_value(expected["logits"].clone()).unwrap();
        close(&format!("{texts:?}"), found, &logits);
    }
    // Words go with all their pieces, and the piece of a space goes with its word.
    let texts = Texts::one("The soup was  unbelievably good!");
    let tokens = tokenizer.encode(&texts).unwrap();
    assert_eq!(tokens.ids, [2, 5, 6, 7, 11, 12, 13, 9, 16, 3]);
    let importance = [0.0, 1.0, 9.0, 1.0, 1.0, 1.0, 9.0, 1.0, 9.0, 0.0];
    let pruned = texts.pruned(&tokens, &importance, 0.7).unwrap();
    assert_eq!(pruned, Texts::one("soup unbelievably good!"));
}

#[test]
fn heads_and_attention_are_the_references() {
    // As `fixtures/make_tiny_classifiers.py` says.
    let classes = |count: usize| Answer::Class((0..count).map(|class| format!("LABEL_{class}")).collect());
    for (name, answer) in [
        ("bert", classes(3)),
        ("bert_regression", Answer::Number),
        ("distilbert", classes(2)),
        ("roberta", classes(5)),
        ("albert", classes(4)),
        ("deberta_v3", classes(3)),
    ] {
        let folder = fixture(name);
        let Expected {
            texts,
            logits,
            importance,
        } = expected(&folder);
        let classifier = Classifier::read(&folder, DType::F32, Device::Cpu).unwrap();
        assert_eq!(classifier.config().answer, answer, "{name}");
        let batch: Vec<&Tokens> = texts.iter().collect();
        let check = |found: &Classified, rows: std::ops::Range<usize>| {
            for (found, row) in found.logits.iter().zip(rows.clone()) {
                close(&format!("{name}, logits of {row}"), found, &logits[row]);
            }
            for (found, row) in found.importance.iter().flatten().zip(rows) {
                let expected = &importance[row][..texts[row].ids.len()];
                close(&format!("{name}, importance in {row}"), found, expected);
            }
        };
        let together = classifier.classify(&batch, true).unwrap();
        assert_eq!(together.importance.as_ref().map(Vec::len), Some(texts.len()));
        check(&together, 0..texts.len());
        // Without importance the fused kernel attends, and a text alone is not padded.
        check(&classifier.classify(&batch, false).unwrap(), 0..texts.len());
        for row in 0..texts.len() {
            check(&classifier.classify(&batch[row..=row], true).unwrap(), row..row + 1);
        }
    }
}

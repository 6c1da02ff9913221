//! Tables that are built, opened, and stand for lower layers.

use std::cell::Cell;
use std::ops::ControlFlow;

use tch::{Kind, Tensor};
use tenantry_core::testing;
use tenantry_plot::Language;

use super::*;
use crate::decoder::Decoder;
use crate::model::Encoder;
use crate::plot::lower::encoder_layers;
use crate::plot::{Building, Progress};
use crate::whole_models::WholeModel;

const PLOT: PlotSpec = PlotSpec {
    lower_layers: 2,
    fragment_tokens: 6,
    ..testing::PLOT
};

const RANDOM: Origin<'static> = Origin {
    seed: 5,
    files: &Files::NONE,
    domains: &Domains::IN_TURNS,
    updates: false,
};

fn model() -> ModelShape {
    ModelShape {
        name: "three".into(),
        layers: 3,
        ..ModelShape::builtin("tiny").unwrap()
    }
}

fn lower(encoder: &Encoder, tokens: &[u32], layers: std::ops::Range<usize>) -> Tensor {
    let ids: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
    let input = encoder.input(&[ids], tokens.len()).unwrap();
    encoder.layers(encoder.embed(&input).unwrap(), layers, &input, None).unwrap()
}

/// A fragment as long as the input stands for the lower layers, up to half precision; longer inputs are averages of
/// what their fragments give each token; and the second time nothing is built.
#[test]
fn tables_stand_for_the_lower_layers() {
    let folder = tempfile::tempdir().unwrap();
    let model = model();
    let encoder = Encoder::random(&model, 5, DType::F32, Device::Cpu).unwrap();
    let encoded = Cell::new(0);
    let open = || {
        let mut encode = |_, fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
            encoded.set(encoded.get() + fragments.len());
            Ok(encoder_layers(&encoder, 2, fragment_tokens, fragments, rows)?)
        };
        let texts = Texts::Made(Language::new(5, model.vocabulary).with_corpus(2));
        Tables::with_encoder(folder.path(), "three", &model, &PLOT, texts, &mut encode, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap()
    };
    let tables = open();
    let built = encoded.get();
    let retrieve = |tokens: &[u32]| {
        let mut found = vec![0f32; tokens.len() * 128];
        let batch = Batch {
            tokens,
            width: tokens.len(),
            lengths: &[tokens.len() as u32],
            domains: &[tables.domains[1]],
        };
        let met = Engine::new(1).unwrap().retrieve(&tables.snapshot(), &batch, &mut found).unwrap();
        (met, Tensor::from_slice(&found).view([1, tokens.len() as i64, 128]))
    };
    let assert_close = |found: &Tensor, expected: &Tensor| {
        let difference = (found - expected).abs().max().double_value(&[]);
        assert!(difference < 4e-3, "off by {difference}");
    };
    let text = tables.texts.corpus(1).next().unwrap();
    for start in [0, 17, 100] {
        let fragment = &text[start..start + 6];
        let (met, found) = retrieve(fragment);
        assert_eq!((met.domain_hits + met.root_hits, met.fallbacks, met.misses), (1, 0, 0));
        assert_close(&found, &lower(&encoder, fragment, 0..2));
        // With the upper layer on top, the whole model.
        let input = crate::Input::of_lengths(&[6], 6, Kind::Float, Device::Cpu).unwrap();
        let upper = Encoder::random_upper(&model, 2, 5, DType::F32, Device::Cpu).unwrap();
        assert_eq!(upper.device_bytes(), 4 * model.layer_parameters());
        assert_close(
            &upper.layers(found, 2..3, &input, None).unwrap(),
            &lower(&encoder, fragment, 0..3),
        );
    }
    // Seven tokens: two fragments, whose overlap is averaged.
    let (_, found) = retrieve(&text[40..47]);
    let [first, second] = [40, 41].map(|start| lower(&encoder, &text[start..start + 6], 0..2));
    assert_close(&found.narrow(1, 0, 1), &first.narrow(1, 0, 1));
    assert_close(
        &found.narrow(1, 1, 5),
        &((first.narrow(1, 1, 5) + second.narrow(1, 0, 5)) / 2),
    );
    assert_close(&found.narrow(1, 6, 1), &second.narrow(1, 5, 1));

    open();
    assert_eq!(encoded.get(), built, "what was built is found again");
}

/// Fragments of each length stand for inputs as long, below each split that HMI has (6 + 6 layers, 6 + 4 and 2 + 4):
/// what is looked up is what the lower layers make of the input, and with the upper layers on top the whole model
/// answers.
#[test]
fn fragments_as_long_as_the_input_stand_for_the_lower_layers_of_each_split() {
    for (lower_layers, upper_layers) in [(6, 6), (6, 4), (2, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let layers = lower_layers + upper_layers;
        let model = ModelShape {
            name: format!("of-{layers}"),
            layers,
            hidden: 64,
            heads: 2,
            kv_heads: 2,
            intermediate: 128,
            vocabulary: 120,
            ..ModelShape::builtin("tiny").unwrap()
        };
        let encoder = Encoder::random(&model, 5, DType::F32, Device::Cpu).unwrap();
        // Weights that let a token's neighbours show.
        encoder.load(&(encoder.parameters() * 3.0)).unwrap();
        let (below, all) = (lower_layers as usize, layers as usize);
        for fragment_tokens in [1, 2, 3, 5, 8] {
            let what = format!("{lower_layers} + {upper_layers} layers, {fragment_tokens} tokens");
            let plot = PlotSpec {
                lower_layers,
                fragment_tokens,
                ..PLOT
            };
            let mut encode = |_, tokens: usize, fragments: &[u32], rows: &mut [f32]| {
                Ok(encoder_layers(&encoder, lower_layers, tokens, fragments, rows)?)
            };
            let texts = Texts::Made(Language::new(5, model.vocabulary).with_corpus(1));
            let go_on = &mut |_: Building<'_>| ControlFlow::Continue(());
            let tables =
                Tables::with_encoder(folder.path(), "split", &model, &plot, texts, &mut encode, go_on).unwrap();
            let text = tables.texts.corpus(1).next().unwrap();
            let retrieve = |tokens: &[u32]| {
                let mut found = vec![0f32; tokens.len() * model.hidden as usize];
                let batch = Batch {
                    tokens,
                    width: tokens.len(),
                    lengths: &[tokens.len() as u32],
                    domains: &[None],
                };
                let engine = Engine::new(1).unwrap();
                let met = engine.retrieve(&tables.snapshot(), &batch, &mut found).unwrap();
                (
                    met,
                    Tensor::from_slice(&found).view([1, tokens.len() as i64, model.hidden.into()]),
                )
            };
            let assert_close = |found: &Tensor, expected: &Tensor| {
                let scale = expected.abs().max().double_value(&[]);
                let difference = (found - expected).abs().max().double_value(&[]);
                assert!(difference < 2e-3 * scale, "{what}: off by {difference} of {scale}");
            };
            let tokens = fragment_tokens as usize;
            for start in [0, 17, 30] {
                let input = &text[start..start + tokens];
                let (met, found) = retrieve(input);
                assert_eq!((met.root_hits, met.fallbacks, met.misses), (1, 0, 0), "{what}");
                assert_close(&found, &lower(&encoder, input, 0..below));
                let mask = crate::Input::of_lengths(&[tokens], tokens, Kind::Float, Device::Cpu).unwrap();
                let answer = encoder.layers(found, below..all, &mask, None).unwrap();
                assert_close(&answer, &lower(&encoder, input, 0..all));
            }
            // Longer by a token, it is no longer the same: fragments do not see beyond themselves.
            let longer = &text[17..18 + tokens];
            let (_, found) = retrieve(longer);
            let expected = lower(&encoder, longer, 0..below);
            assert!(!found.allclose(&expected, 1e-2, 1e-2, false), "{what}");
        }
    }
}

/// What further pretraining is taken to make of the lower layers: other representations of every fragment, near the
/// root's, each domain's its own; and a domain's table answers before the root's (Eq. 3).
#[test]
fn domains_have_representations_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tiny", "tiny-opt"] {
        let model = ModelShape {
            // Longer than what file systems leave to it beside what else rows hang on.
            name: format!("{name}-{}", "x".repeat(220)),
            layers: 3,
            vocabulary: 300,
            ..ModelShape::builtin(name).unwrap()
        };
        let plot = PlotSpec {
            fragment_tokens: 3,
            ..PLOT
        };
        let tables = Tables::open_or_build(folder.path(), &model, &plot, RANDOM, Device::Cpu, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        let snapshot = tables.snapshot();
        let root = &snapshot.root().tables()[0];
        let of_domain = |domain: usize| &snapshot.branch(tables.domains[domain].unwrap()).unwrap().tables()[0];
        let (key, _) = of_domain(1).fragments().find(|(key, _)| of_domain(2).get(key).unwrap().is_some()).unwrap();
        let [generic, first, second] = [root, of_domain(1), of_domain(2)].map(|table| {
            let row = table.get(key).unwrap().unwrap();
            Tensor::from_slice(&row.iter().map(|value| value.to_f32()).collect::<Vec<f32>>())
        });
        let apart = |a: &Tensor, b: &Tensor| ((a - b).norm() / a.norm()).double_value(&[]);
        for (what, distance) in [
            ("root and domain", apart(&generic, &first)),
            ("two domains", apart(&first, &second)),
        ] {
            assert!((0.005..0.5).contains(&distance), "{name}, {what}: {distance}");
        }
        let layers = LowerLayers::random(&model, 5, DType::F32, Device::Cpu).unwrap();
        let mut expected = vec![0.0; first.numel()];
        layers.of_domain(1, 0, 2, 5).unwrap().encode(2, 3, key, &mut expected).unwrap();
        assert!(
            apart(&first, &Tensor::from_slice(&expected)) < 2e-3,
            "{name}: the domain's own layers"
        );
        let looked_up = |tenant| {
            let mut out = vec![0.0; 3 * 128];
            let (engine, texts) = (Engine::new(1).unwrap(), [(tenant, key, 2)]);
            tables.retrieve_ends(&engine, &texts, &mut out[..128]).unwrap();
            Tensor::from_slice(&out[..128])
        };
        let last = |row: &Tensor| row.narrow(0, row.numel() as i64 - 128, 128);
        if name == "tiny-opt" {
            assert!(apart(&looked_up(1), &last(&first)) < 1e-6, "the domain's");
            tables.withdraw(1);
            assert!(apart(&looked_up(1), &last(&generic)) < 1e-6, "the root's");
        }
    }
}

/// hGPT: with fragments as long as the text, what is looked up of every token is what the lower layers of the whole
/// decoder make of it, up to half precision; with shorter ones, what they make of the fragment that ends there; and a
/// token that no corpus had is itself.
#[test]
fn tables_stand_for_a_decoders_lower_layers() {
    for name in ["tiny-opt", "tiny-llama"] {
        let folder = tempfile::tempdir().unwrap();
        let model = ModelShape {
            layers: 3,
            vocabulary: 150,
            ..ModelShape::builtin(name).unwrap()
        };
        let decoder = Decoder::random(&model, 5, DType::F32, Device::Cpu).unwrap();
        // Weights that let a token's neighbours show.
        decoder.load(&(decoder.parameters() * 5.0)).unwrap();
        let layers = LowerLayers::Decoder(decoder.share());
        let open = |fragment_tokens| {
            let mut encode =
                |_, tokens: usize, fragments: &[u32], rows: &mut [f32]| Ok(layers.encode(2, tokens, fragments, rows)?);
            let plot = PlotSpec {
                fragment_tokens,
                ..PLOT
            };
            let texts = Texts::Made(Language::new(5, model.vocabulary).with_corpus(1));
            Tables::with_encoder(folder.path(), name, &model, &plot, texts, &mut encode, &mut |_| {
                ControlFlow::Continue(())
            })
            .unwrap()
        };
        let lower = |tokens: &[u32]| -> Tensor {
            let ids: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
            decoder.lower_layers(&[ids], 2).unwrap().get(0)
        };
        let retrieve = |tables: &Tables, tokens: &[u32], first: usize| {
            let mut found = vec![0f32; (tokens.len() - first) * 128];
            let engine = Engine::new(1).unwrap();
            let met = tables.retrieve_ends(&engine, &[(1, tokens, first)], &mut found).unwrap();
            assert_eq!(met.misses, 0);
            (met, Tensor::from_slice(&found).view([-1, 128]))
        };
        let assert_close = |found: &Tensor, expected: &Tensor| {
            let scale = expected.abs().max().double_value(&[]);
            let difference = (found - expected).abs().max().double_value(&[]);
            assert!(difference < 1e-3 * scale, "{name}: off by {difference} of {scale}");
        };
        let tables = open(6);
        let text = tables.texts.corpus(1).next().unwrap();
        for start in [0, 17, 100] {
            // As long as the text: every token's fragment is all that comes before it.
            let text = &text[start..start + 6];
            let (met, found) = retrieve(&tables, text, 0);
            assert_eq!(
                (met.tokens, met.domain_hits + met.root_hits),
                (6, 1),
                "the others are shorter"
            );
            assert_close(&found, &lower(text));
        }
        let trigrams = open(3);
        let (_, found) = retrieve(&trigrams, &text[..20], 7);
        for (row, end) in (7..20).enumerate() {
            let expected = lower(&text[end - 2..=end]).get(2);
            assert_close(&found.get(row as i64), &expected);
        }
        let whole = lower(&text[..20]).get(19);
        assert!(
            !found.get(12).allclose(&whole, 1e-2, 1e-2, false),
            "three tokens are not the whole text"
        );
        // Never in this order, and perhaps never at all.
        let (met, found) = retrieve(&trigrams, &[149, 148, 149], 2);
        assert_eq!(met.fallbacks, 1);
        let longest = [lower(&[148, 149]).get(1), lower(&[149]).get(0)];
        assert!(longest.iter().any(|row| found.get(0).allclose(row, 1e-3, 1e-2, false)));
    }
}

/// A build that is stopped keeps what it has, and goes on with it.
#[test]
fn a_stopped_build_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let model = model();
    let encoder = Encoder::random(&model, 5, DType::F32, Device::Cpu).unwrap();
    let open = |folder: &Path, encoded: &Cell<usize>, stops: &dyn Fn() -> bool| {
        let mut encode = |_, fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
            encoded.set(encoded.get() + fragments.len());
            Ok(encoder_layers(&encoder, 2, fragment_tokens, fragments, rows)?)
        };
        let texts = Texts::Made(Language::new(5, model.vocabulary).with_corpus(4));
        let mut watch = |at: Building<'_>| match at.progress {
            Progress::Encoding { .. } if stops() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        Tables::with_encoder(folder, "three", &model, &PLOT, texts, &mut encode, &mut watch)
    };
    let (at_once, in_pieces, mut stopped) = (Cell::new(0), Cell::new(0), 0);
    open(&folder.path().join("once"), &at_once, &|| false).unwrap();
    // Stopped after each chunk.
    while let Err(error) = open(&folder.path().join("pieces"), &in_pieces, &|| true) {
        assert!(
            matches!(error, ExecutorError::Plot(PlotError::Interrupted { .. })),
            "{error}"
        );
        stopped += 1;
    }
    assert!(stopped > 3, "there are several tables of several chunks: {stopped}");
    assert_eq!(in_pieces, at_once, "nothing is encoded twice");
}

/// Tables of few texts that are kept here, with what domains are updated to where that is asked for.
fn kept_in(folder: &Path, updates: bool) -> Result<Tables, ExecutorError> {
    let encoder = Encoder::random(&model(), 5, DType::F32, Device::Cpu).unwrap();
    let mut encode = |_, tokens: usize, fragments: &[u32], rows: &mut [f32]| {
        Ok(encoder_layers(&encoder, 2, tokens, fragments, rows)?)
    };
    let texts = Texts::Made(Language::new(5, model().vocabulary).with_corpus(1));
    let go_on = &mut |_: Building<'_>| ControlFlow::Continue(());
    let tables = Tables::with_encoder(folder, "kept", &model(), &PLOT, texts, &mut encode, go_on)?;
    match updates {
        true => tables.with_updates("kept", &model(), &PLOT, &mut encode, go_on),
        false => Ok(tables),
    }
}

/// A broken table is refused, and the message says which folder is to be removed for a new one.
#[test]
fn what_was_kept_and_is_broken_is_refused_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let open = || kept_in(folder.path(), false);
    let kept = open().unwrap().folder;
    let table = kept.join("root").join("v1").join("6.plot");
    let length = fs::metadata(&table).unwrap().len();
    fs::File::options().write(true).open(&table).unwrap().set_len(length / 2).unwrap();
    let message = open().err().expect("it was cut").to_string();
    assert!(message.contains("the file was cut"), "{message}");
    let advice = format!("remove {} and its tables are built anew", kept.display());
    assert!(message.ends_with(&advice), "{message}");
    fs::remove_dir_all(&kept).unwrap();
    open().unwrap();
}

/// The root opens without its tables of shorter fragments too, and would miss what only they have.
#[test]
fn a_root_that_lacks_a_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = || kept_in(folder.path(), false);
    let kept = open().unwrap().folder;
    let table = kept.join("root").join("v1").join("1.plot");
    fs::remove_file(&table).unwrap();
    let message = open().err().expect("it was removed").to_string();
    let expected = format!(
        "{}: table: must be there, got no such file; remove {} and its tables are built anew",
        table.display(),
        kept.display()
    );
    assert_eq!(message, expected);
}

/// Tables that are all there are opened without a trace: they may lie where nobody may write.
#[test]
fn what_is_whole_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let open = || kept_in(folder.path(), true).unwrap();
    let lock = open().folder.join("lock");
    fs::remove_file(&lock).unwrap();
    let tables = open();
    tables.reload(1).unwrap();
    assert!(!lock.exists(), "nothing was to be built");
    // What lacks a domain's table is built, by one process at a time.
    fs::remove_file(tables.folder.join("domains/domain-1/CURRENT")).unwrap();
    drop(tables);
    open();
    assert!(lock.exists());
}

/// Who cannot write where tables are kept is told how to keep them elsewhere.
#[test]
fn a_place_that_takes_no_tables_is_told_with_how_to_change_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plot");
    fs::write(&file, "no folder").unwrap();
    let go_on = &mut |_: Building<'_>| ControlFlow::Continue(());
    let refused = Tables::open_or_build(&file, &model(), &PLOT, RANDOM, Device::Cpu, go_on);
    let message = refused.err().expect("a file has no tables").to_string();
    let advice = format!(
        "; tables are kept in {}: XDG_CACHE_HOME names another place for them",
        file.display()
    );
    assert!(message.ends_with(&advice), "{message}");
}

#[test]
fn long_names_are_told_apart_by_a_hash() {
    let long = |last: char| short_name(&format!("{}{last}", "ä".repeat(150)));
    assert_eq!(short_name("bert-base"), "bert-base");
    assert!(
        long('a').len() <= NAME_BYTES && long('a').starts_with("ää"),
        "{}",
        long('a')
    );
    assert_ne!(long('a'), long('b'));
}

#[test]
fn a_table_leaves_a_layer_to_compute() {
    let folder = tempfile::tempdir().unwrap();
    let plot = PlotSpec {
        lower_layers: 3,
        ..PLOT
    };
    let refused = Tables::open_or_build(folder.path(), &model(), &plot, RANDOM, Device::Cpu, &mut |_| {
        ControlFlow::Continue(())
    });
    let message = refused.err().expect("nothing would be left").to_string();
    assert_eq!(
        message,
        "lower layers of the table: must be below 3, the layers of three, got 3"
    );
}

//! What is wrong with a table, or with what is asked of it, is told before anybody gets a wrong row.

use tenantry_plot::{Batch, Engine, Node, Table, Tiers, Tree};
use tenantry_traces::draw::{Draws, Purpose};

use super::*;

#[test]
fn a_corrupt_byte_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path());
    let bytes = fs::read(&path).unwrap();
    let fragments = Table::open(&path, Tier::Disk).unwrap().counted().fragments;
    let rows = 4096..4096 + fragments * SHAPE.row_bytes();
    let mut stream = Draws::new(7, Purpose::Tokens).about(0);
    let anywhere = (0..25).map(|_| stream.bits() % bytes.len() as u64);
    // Each part's ends as well, wherever chance led.
    let ends = [
        0,
        8,
        12,
        16,
        4095,
        rows.start,
        rows.end - 1,
        rows.end,
        bytes.len() as u64 - 1,
    ];
    for at in anywhere.chain(ends).collect::<Vec<_>>() {
        alter(&path, at, &[bytes[at as usize] ^ 1 << (at % 8)]);
        assert!(Table::open(&path, MEMORY).is_err(), "byte {at}, memory tier");
        match Table::open(&path, Tier::Disk) {
            // Opening reads all but the rows.
            Ok(table) if rows.contains(&at) => {
                let ordinal = (at - rows.start) / SHAPE.row_bytes();
                let text = error(table.verify()).to_string();
                let chunk = ordinal / 7 * 7;
                assert!(text.contains(&format!("rows {chunk} to ")), "{text}, byte {at}");
                // Nobody gets it for an answer.
                let key = table.fragments().find(|(_, of)| u64::from(*of) == ordinal).unwrap().0;
                let text = error(table.get(key)).to_string();
                assert!(text.contains(&format!("row {ordinal}")), "{text}, byte {at}");
            }
            Ok(_) => panic!("byte {at} is no row's, and the table opened"),
            Err(_) => assert!(!rows.contains(&at), "byte {at} is a row's"),
        }
        // Also when it becomes corrupt while open.
        alter(&path, at, &bytes[at as usize..][..1]);
        let table = Table::open(&path, Tier::Disk).unwrap();
        alter(&path, at, &[!bytes[at as usize]]);
        assert!(table.verify().is_err(), "byte {at}, verified later");
        alter(&path, at, &bytes[at as usize..][..1]);
        table.verify().unwrap();
    }
}

#[test]
fn a_foreign_header_is_told_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path());
    let refused = |at: u64, bytes: &[u8]| {
        let old = fs::read(&path).unwrap();
        alter(&path, at, bytes);
        let error = error(Table::open(&path, Tier::Disk));
        fs::write(&path, old).unwrap();
        error
    };
    assert!(matches!(refused(0, b"PK"), PlotError::Magic { .. }));
    assert!(matches!(
        refused(8, &0x0a0b_0c0du32.to_be_bytes()),
        PlotError::ByteOrder { .. }
    ));
    assert!(matches!(
        refused(12, &9u32.to_le_bytes()),
        PlotError::Version { must: 2, got: 9, .. }
    ));
    assert!(matches!(refused(24, &65u32.to_le_bytes()), PlotError::Checksum { part, .. } if part == "header"));

    let text = fs::read(&path).unwrap();
    fs::write(&path, [&text[..], b"more"].concat()).unwrap();
    assert!(matches!(
        error(Table::open(&path, MEMORY)),
        PlotError::Field { field: "length", .. }
    ));
    fs::write(&path, "a short text that is no table").unwrap();
    assert!(matches!(error(Table::open(&path, MEMORY)), PlotError::Magic { .. }));
    fs::remove_file(&path).unwrap();
    assert!(matches!(error(Table::open(&path, MEMORY)), PlotError::Io { .. }));
}

/// As another program would write it: a header that is right in itself, of sizes that are not the file's.
#[test]
fn sizes_that_do_not_fit_are_refused_although_the_checksum_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path());
    let mut header = fs::read(&path).unwrap()[..4096].to_vec();
    for (at, value, field) in [
        (24, 0u32, "hidden"),
        (24, 65, "file_bytes"),
        (20, 9, "context"),
        (28, 0, "chunk_fragments"),
    ] {
        let old: [u8; 4] = header[at..at + 4].try_into().unwrap();
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        alter(
            &path,
            0,
            &[&header[..4064], blake3::hash(&header[..4064]).as_bytes()].concat(),
        );
        let text = error(Table::open(&path, Tier::Disk)).to_string();
        assert!(text.contains(&format!("{field}: must be")), "{text}");
        header[at..at + 4].copy_from_slice(&old);
    }
}

#[test]
fn another_hidden_size_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = Table::open(table(folder.path()), Tier::Disk).unwrap();
    table.require(&SHAPE).unwrap();
    let text = error(table.require(&Shape::trigrams(768))).to_string();
    assert!(text.ends_with("3.plot: hidden: must be 768, got 64"), "{text}");
    assert!(matches!(table.get(&[1, 2]), Err(PlotError::Input { .. })));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path());
    let bytes = fs::read(&path).unwrap();
    let mut stream = Draws::new(8, Purpose::Tokens).about(0);
    let lengths = (0..25).map(|_| stream.bits() as usize % bytes.len());
    for length in lengths.chain([0, 1, 8, 4095, 4096, bytes.len() - 1]) {
        fs::write(&path, &bytes[..length]).unwrap();
        for tier in [MEMORY, Tier::Disk] {
            let error = error(Table::open(&path, tier));
            assert!(matches!(error, PlotError::Truncated { .. }), "{length} bytes: {error}");
        }
    }
}

/// The fault that would be SIGBUS with a mapped file.
#[test]
fn a_table_cut_under_its_reader_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let staged = Tree::stage(folder.path(), Node::Root).unwrap();
    table(&staged);
    let tree = Tree::found(
        folder.path(),
        Tiers {
            root: Tier::Disk,
            domains: MEMORY,
        },
    )
    .unwrap();
    let snapshot = tree.snapshot();
    let in_memory = Table::open(snapshot.root().tables()[0].path(), Tier::Memory { locked: true }).unwrap();
    let texts = texts();
    let tokens = texts.concat();
    let batch = Batch {
        tokens: &tokens,
        width: 40,
        lengths: &[40; 60],
        domains: &[None; 60],
    };
    let mut out = vec![0.0f32; tokens.len() * 64];
    let engines = [Engine::new(1).unwrap(), Engine::new(2).unwrap().always_sharing()];
    let path = snapshot.root().tables()[0].path().to_path_buf();
    for length in [fs::metadata(&path).unwrap().len() / 2, 4096, 0] {
        engines[0].retrieve(&snapshot, &batch, &mut out).err();
        fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        for engine in &engines {
            let error = error(engine.retrieve(&snapshot, &batch, &mut out));
            assert!(
                matches!(error, PlotError::Truncated { got_bytes, .. } if got_bytes == length),
                "{error}"
            );
        }
        assert!(snapshot.root().tables()[0].verify().is_err());
    }
    // The memory tier has all it needs, and its memory is its own.
    let row = in_memory.get(&texts[0][..3]).unwrap().unwrap();
    assert_eq!(row.len(), SHAPE.row_values());
}

/// A row that rots under its readers fails the batches that need it, warm or cold, by one thread or several; others are
/// answered.
#[test]
fn a_row_that_rots_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let staged = Tree::stage(folder.path(), Node::Root).unwrap().join("3.plot");
    build(&staged, SHAPE, Select::All, &texts(), 1).unwrap();
    let tiers = Tiers {
        root: Tier::Disk,
        domains: MEMORY,
    };
    let snapshot = Tree::found(folder.path(), tiers).unwrap().snapshot();
    let table = &snapshot.root().tables()[0];
    let texts = texts();
    let look_up = |text: &[u32], threads| {
        let batch = Batch {
            tokens: text,
            width: text.len(),
            lengths: &[text.len() as u32],
            domains: &[None],
        };
        let mut out = vec![0.0f32; text.len() * 64];
        let engine = Engine::new(threads).unwrap().always_sharing();
        engine.retrieve(&snapshot, &batch, &mut out)
    };
    let (ordinal, rotten) = table
        .fragments()
        .find(|(key, _)| *key == &texts[3][5..8])
        .map(|(key, ordinal)| (ordinal, key.to_vec()))
        .unwrap();
    let at = 4096 + u64::from(ordinal) * SHAPE.row_bytes() + 17;
    let byte = fs::read(table.path()).unwrap()[at as usize];
    alter(table.path(), at, &[byte ^ 4]);
    for cold in [false, true] {
        for threads in [1, 2] {
            if cold {
                table.drop_page_cache().unwrap();
            }
            let text = error(look_up(&texts[3], threads)).to_string();
            assert!(text.contains(&format!("row {ordinal}")), "{text}");
        }
    }
    let sound = texts.iter().find(|text| text.windows(3).all(|key| key != rotten)).unwrap();
    assert!(look_up(sound, 2).is_ok());
}

#[test]
fn a_batch_whose_parts_do_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    table(&Tree::stage(folder.path(), Node::Root).unwrap());
    let tree = Tree::found(
        folder.path(),
        Tiers {
            root: MEMORY,
            domains: MEMORY,
        },
    )
    .unwrap();
    let snapshot = tree.snapshot();
    let engine = Engine::new(1).unwrap();
    let good = Batch {
        tokens: &[0; 8],
        width: 4,
        lengths: &[4, 2],
        domains: &[None, None],
    };
    let refuse = |batch: Batch, values: usize, what: &str| {
        let text = error(engine.retrieve(&snapshot, &batch, &mut vec![0.0f32; values])).to_string();
        assert!(text.starts_with(what), "{text}");
    };
    engine.retrieve(&snapshot, &good, &mut vec![0.0f32; 8 * 64]).unwrap();
    refuse(good, 8 * 64 - 1, "out: must be 512 values");
    refuse(
        Batch {
            tokens: &[0; 7],
            ..good
        },
        8 * 64,
        "tokens: must be 8 values",
    );
    refuse(
        Batch {
            domains: &[None],
            ..good
        },
        8 * 64,
        "domains: must be 2 values",
    );
    refuse(
        Batch {
            lengths: &[4, 5],
            ..good
        },
        8 * 64,
        "lengths: must be at most the width, 4, got 5",
    );
    assert!(Engine::new(0).is_err());
}

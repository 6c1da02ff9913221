//! Whatever happens to a table's file, the answer is an error or the right row; whatever happens to its building, it is resumed to the same bytes.

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Layers, build, corpus, go_on, infallible, spec};
use tenantry_plot::{
    Batch, Builder, Cause, Context, Encode, Engine, Node, PlotError, Progress, Select, Shape, Table, Tier, Tiers, Tree,
};
use tenantry_traces::draw::{Draws, Purpose};

const MEMORY: Tier = Tier::Memory { locked: false };
const SHAPE: Shape = Shape {
    fragment_tokens: 3,
    context: Context::Both,
    hidden: 64,
};

fn texts() -> Vec<Vec<u32>> {
    corpus(60, 40, 300, 1)
}

fn table(folder: &Path) -> PathBuf {
    let path = folder.join("3.plot");
    build(&path, SHAPE, Select::All, &texts(), 1).unwrap();
    path
}

fn error<T>(result: Result<T, PlotError>) -> PlotError {
    result.err().expect("it is refused")
}

/// Changes the file in place.
fn alter(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, at)
        .unwrap();
}

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
    assert!(table.is_encoded_by("layers of seed 1") && !table.is_encoded_by("layers of seed 2"));
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
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length)
            .unwrap();
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

/// A row that rots under its readers fails the batches that need it, warm or cold, by one thread or several; others are answered.
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
    let (ordinal, rotten) = { table.fragments() }
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
    let sound = { texts.iter() }
        .find(|text| text.windows(3).all(|key| key != rotten))
        .unwrap();
    assert!(look_up(sound, 2).is_ok());
}

#[test]
fn an_interrupted_build_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(table(folder.path())).unwrap();
    let path = folder.path().join("again.plot");
    let builder = || Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    let (mut chunks, mut resumed_at) = (0, Vec::new());
    loop {
        let mut encoded = 0;
        // Each time one chunk more than the last, so that it ends.
        let mut stop = |progress| match progress {
            Progress::Encoding { .. } => {
                encoded += 1;
                if encoded > chunks {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            }
            Progress::Counting { .. } => ControlFlow::Continue(()),
        };
        let counted_before = builder().is_counted();
        assert_eq!(counted_before, chunks > 0);
        let corpus = texts();
        let result = match counted_before {
            // Counted is counted: the corpus is not read again.
            true => builder().run([Err::<&[u32], _>("read again")], &mut Layers::new(SHAPE, 1), &mut stop),
            false => builder().run(infallible(&corpus), &mut Layers::new(SHAPE, 1), &mut stop),
        };
        match result {
            Ok(_) => break,
            Err(PlotError::Interrupted { done, .. }) => resumed_at.push(done),
            Err(error) => panic!("{error}"),
        }
        assert!(!path.exists(), "half a table has no name");
        if chunks == 3 {
            // Torn by a failure of power: the journal knows of rows that the disk has not.
            let rows = folder.path().join("again.plot.building/rows");
            let length = fs::metadata(&rows).unwrap().len();
            fs::File::options()
                .write(true)
                .open(&rows)
                .unwrap()
                .set_len(length - 5)
                .unwrap();
        }
        chunks += 1;
    }
    assert_eq!(resumed_at[..5], [7, 21, 42, 70, 98], "7 a chunk, one of which was torn");
    assert!(fs::read(&path).unwrap() == whole);
    assert!(!folder.path().join("again.plot.building").exists());
}

/// Layers that take their time, so that there is one to be killed in.
struct Slow(Layers);

impl Encode for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.encode(fragments, rows)
    }
}

/// Not a test by itself: what others run in a process of its own.
#[test]
fn child_builds() {
    let Some(path) = std::env::var_os("PLOT_CHILD") else {
        return;
    };
    let corpus = texts();
    let builder = Builder::open(path, spec(SHAPE, Select::All)).unwrap();
    if let Err(error) = builder.run(infallible(&corpus), &mut Slow(Layers::new(SHAPE, 1)), &mut go_on) {
        println!("{error}");
        std::process::exit(9);
    }
}

/// The child, under a shell that sets a limit first.
fn child(path: &Path, limit: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit} exec \"$0\" --exact child_builds --nocapture")]);
    command.arg(std::env::current_exe().unwrap()).env("PLOT_CHILD", path);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_build_killed_at_any_moment_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(table(folder.path())).unwrap();
    let path = folder.path().join("killed.plot");
    let journal = folder.path().join("killed.plot.building/journal");
    let mut done_before = 0;
    for kill in 0.. {
        let mut process = child(&path, "").spawn().unwrap();
        // Killed whenever the journal has grown by a few chunks, wherever that finds it.
        let ended = loop {
            let done = fs::metadata(&journal).map_or(0, |metadata| metadata.len() / 32);
            if done >= done_before + 20 + kill {
                process.kill().unwrap();
                process.wait().unwrap();
                done_before = done;
                break false;
            }
            if process.try_wait().unwrap().is_some() {
                break true;
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        if ended || path.exists() {
            assert!(kill > 3, "it was killed a few times before");
            break;
        }
    }
    assert!(fs::read(&path).unwrap() == whole);
}

#[test]
fn a_full_disk_keeps_what_was_built_and_shows_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(table(folder.path())).unwrap();
    let path = folder.path().join("full.plot");
    // A limit on a file's size fails a write as a full disk does, part-way; 300 kB here, in the shell's blocks of 512 bytes.
    let output = child(&path, "trap '' XFSZ; ulimit -f 600;").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(9),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("full.plot.building/rows: ") && text.contains("too large"),
        "{text}"
    );
    assert!(!path.exists());
    let kept = fs::metadata(folder.path().join("full.plot.building/journal"))
        .unwrap()
        .len()
        / 32;
    assert!(kept * 7 * SHAPE.row_bytes() > 290_000, "{kept} chunks are kept");

    let mut encoded = Vec::new();
    let mut watch = |progress| {
        encoded.push(progress);
        ControlFlow::Continue(())
    };
    let builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    builder
        .run([Err::<&[u32], _>("read again")], &mut Layers::new(SHAPE, 1), &mut watch)
        .unwrap();
    assert!(
        matches!(encoded[0], Progress::Encoding { done, .. } if done == (kept + 1) * 7),
        "{:?}",
        encoded[0]
    );
    assert!(fs::read(&path).unwrap() == whole);
}

/// A disk that is really full (ENOSPC), which is then made larger. It is a small tmpfs, for which a namespace of one's own is needed.
#[test]
fn a_disk_without_space_is_gone_on_with_once_it_has_some() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, copied) = (folder.path().join("disk"), folder.path().join("copied.plot"));
    fs::create_dir(&disk).unwrap();
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(std::env::current_exe().unwrap()).arg(&disk).arg(&copied);
        command.env("PLOT_CHILD", disk.join("full.plot")).output()
    };
    match in_namespace("mount -t tmpfs tmpfs \"$1\"") {
        Ok(tried) if tried.status.success() => (),
        tried => {
            eprintln!("SKIPPED: no tmpfs can be mounted here: {tried:?}");
            return;
        }
    }
    let output = in_namespace(
        "mount -t tmpfs -o size=300k tmpfs \"$1\"
         \"$0\" --exact child_builds --nocapture
         echo \"ended with $?\"
         test ! -e \"$1/full.plot\" && test -s \"$1/full.plot.building/journal\" && echo \"kept\"
         mount -o remount,size=64m \"$1\"
         \"$0\" --exact child_builds && cp \"$1/full.plot\" \"$2\"",
    )
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for said in [
        "full.plot.building/rows: ",
        "No space left on device",
        "ended with 9\nkept\n",
    ] {
        assert!(text.contains(said), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let whole = fs::read(table(folder.path())).unwrap();
    assert!(fs::read(&copied).unwrap() == whole);
}

#[test]
fn a_full_disk_while_counting_leaves_nothing_half_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.plot");
    // Less than the chosen fragments' keys.
    let output = child(&path, "trap '' XFSZ; ulimit -f 10;").output().unwrap();
    assert_eq!(output.status.code(), Some(9));
    assert!(!Builder::open(&path, spec(SHAPE, Select::All)).unwrap().is_counted());
    build(&path, SHAPE, Select::All, &texts(), 1).unwrap();
}

#[test]
fn what_was_begun_is_not_mixed_with_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("3.plot");
    let corpus = texts();
    let stop = &mut |progress| match progress {
        Progress::Encoding { .. } => ControlFlow::Break(()),
        Progress::Counting { .. } => ControlFlow::Continue(()),
    };
    let builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    error(builder.run(infallible(&corpus), &mut Layers::new(SHAPE, 1), stop));
    // Other fragments, other layers.
    let refused = error(Builder::open(&path, spec(SHAPE, Select::Coverage(0.5))));
    assert!(
        refused.to_string().contains("plan: must be what was begun"),
        "{refused}"
    );
    let builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    let refused = error(builder.encode(&mut Layers::new(SHAPE, 2), &mut go_on));
    assert!(
        refused
            .to_string()
            .contains("encoder: must be what was begun (layers of seed 1)"),
        "{refused}"
    );
    // Two at once.
    let first = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    let refused = error(Builder::open(&path, spec(SHAPE, Select::All)));
    assert!(
        refused
            .to_string()
            .contains("lock: must be free, got held by another build"),
        "{refused}"
    );
    drop(first);
    // Keys that are no longer those that were chosen.
    let chosen = folder.path().join("3.plot.building/fragments");
    alter(&chosen, 100, &[77]);
    let builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    let refused = error(builder.encode(&mut Layers::new(SHAPE, 1), &mut go_on));
    assert!(matches!(refused, PlotError::Checksum { .. }), "{refused}");
}

/// Killed between the table's rename and the removal of the folder: nothing is built twice.
#[test]
fn a_build_killed_after_publishing_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("3.plot");
    let corpus = texts();
    let mut builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    builder.count(infallible(&corpus), &mut go_on).unwrap();
    let building = folder.path().join("3.plot.building");
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    for name in ["plan", "fragments"] {
        fs::copy(building.join(name), kept.join(name)).unwrap();
    }
    builder.encode(&mut Layers::new(SHAPE, 1), &mut go_on).unwrap();
    fs::rename(&kept, &building).unwrap();
    fs::write(building.join("journal"), "").unwrap();
    assert!(
        !Builder::is_done(&path).unwrap(),
        "no tree takes it beside an unfinished build"
    );
    let mut never = |_| panic!("nothing is encoded");
    Builder::open(&path, spec(SHAPE, Select::All))
        .unwrap()
        .encode(&mut Layers::new(SHAPE, 1), &mut never)
        .unwrap();
    assert!(path.exists() && !building.exists());
    // Killed while what was left of the build was removed.
    let remains = folder.path().join("3.plot.built");
    fs::create_dir(&remains).unwrap();
    assert!(Builder::is_done(&path).unwrap() && !remains.exists());
    assert!(!Builder::is_done(folder.path().join("2.plot")).unwrap());
}

struct Failing(&'static str);

impl Encode for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn encode(&mut self, _: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        match self.0 {
            "error" => return Err("out of memory".into()),
            "not a number" => rows[5] = f32::NAN,
            "infinite" => rows[5] = f32::NEG_INFINITY,
            _ => rows[5] = 70_000.0,
        }
        Ok(())
    }
}

#[test]
fn layers_that_fail_or_overflow_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = texts();
    let path = folder.path().join("3.plot");
    for (how, says) in [
        ("error", "out of memory"),
        ("not a number", "NaN"),
        ("infinite", "-inf"),
        ("too large", "70000"),
    ] {
        let builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
        let text = error(builder.run(infallible(&corpus), &mut Failing(how), &mut go_on)).to_string();
        assert!(text.starts_with("fragments 0 to 6: ") && text.ends_with(says), "{text}");
    }
    let builder = Builder::open(folder.path().join("other"), spec(SHAPE, Select::All)).unwrap();
    let broken = [Ok(&corpus[0][..]), Err("no such shard")];
    let text = error(builder.run(broken, &mut Layers::new(SHAPE, 1), &mut go_on)).to_string();
    assert_eq!(text, "corpus, sequence 1: no such shard");
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

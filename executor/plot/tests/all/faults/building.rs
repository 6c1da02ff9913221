//! Builds that are interrupted, killed or out of space, and layers that fail.

use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenantry_plot::{Builder, Cause, Encode, Progress};

use super::*;
use crate::common::{Layers, go_on, infallible, spec};

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
            fs::File::options().write(true).open(&rows).unwrap().set_len(length - 5).unwrap();
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
    command.args([
        "-c",
        &format!("{limit} exec \"$0\" --exact faults::building::child_builds --nocapture"),
    ]);
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
    // A limit on a file's size fails a write as a full disk does, part-way; 300 kB here, in the shell's blocks of 512
    // bytes.
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
    let kept = fs::metadata(folder.path().join("full.plot.building/journal")).unwrap().len() / 32;
    assert!(kept * 7 * SHAPE.row_bytes() > 290_000, "{kept} chunks are kept");

    let mut encoded = Vec::new();
    let mut watch = |progress| {
        encoded.push(progress);
        ControlFlow::Continue(())
    };
    let builder = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    builder.run([Err::<&[u32], _>("read again")], &mut Layers::new(SHAPE, 1), &mut watch).unwrap();
    assert!(
        matches!(encoded[0], Progress::Encoding { done, .. } if done == (kept + 1) * 7),
        "{:?}",
        encoded[0]
    );
    assert!(fs::read(&path).unwrap() == whole);
}

/// A disk that is really full (ENOSPC), which is then made larger. It is a small tmpfs, for which a namespace of one's
/// own is needed.
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
         \"$0\" --exact faults::building::child_builds --nocapture
         echo \"ended with $?\"
         test ! -e \"$1/full.plot\" && test -s \"$1/full.plot.building/journal\" && echo \"kept\"
         mount -o remount,size=64m \"$1\"
         \"$0\" --exact faults::building::child_builds && cp \"$1/full.plot\" \"$2\"",
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
        refused.to_string().contains("encoder: must be what was begun (layers of seed 1)"),
        "{refused}"
    );
    // Two at once.
    let first = Builder::open(&path, spec(SHAPE, Select::All)).unwrap();
    let refused = error(Builder::open(&path, spec(SHAPE, Select::All)));
    assert!(
        refused.to_string().contains("lock: must be free, got held by another build"),
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

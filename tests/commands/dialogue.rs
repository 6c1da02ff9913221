//! The dialogue of `tenantry new`, on a terminal of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::{folder, good, tenantry};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

/// Longer than any answer takes: who waits longer waits for nothing.
const STUCK: Duration = Duration::from_secs(120);

const ENTER: &str = "\r";
const DOWN: &str = "\x1b[B";
const CTRL_C: &str = "\x03";

/// The program on a terminal, with somebody who reads before she types.
struct Terminal {
    child: Child,
    keys: File,
    shown: Receiver<String>,
    seen: String,
    /// How much of `seen` was waited for.
    read: usize,
}

impl Terminal {
    fn start(folder: &Path, args: &[&str]) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = || -> OwnedFd { rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap() };
        let terminal = theirs();
        tcsetwinsize(
            &terminal,
            Winsize {
                ws_row: 40,
                ws_col: 100,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
        // A key that comes before the program looks for keys is kept for it, and neither shown nor taken for a signal.
        let mut modes = tcgetattr(&terminal).unwrap();
        modes.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tenantry"))
            .current_dir(folder)
            .args(args)
            .env("TERM", "xterm")
            .stdin(Stdio::from(theirs()))
            .stdout(Stdio::from(theirs()))
            .stderr(Stdio::from(terminal))
            .spawn()
            .unwrap();
        let keys = File::from(ours);
        let mut screen = keys.try_clone().unwrap();
        let (show, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The terminal is gone when the program is.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                show.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).ok();
            }
        });
        Terminal {
            child,
            keys,
            shown,
            seen: String::new(),
            read: 0,
        }
    }

    /// Waits until `text` is shown, then types.
    fn after(&mut self, text: &str, keys: &str) -> &mut Terminal {
        while !self.seen[self.read..].contains(text) {
            let Ok(more) = self.shown.recv_timeout(STUCK) else {
                panic!("{text:?} does not come after {:?}", self.seen);
            };
            self.seen += &more;
        }
        self.read += self.seen[self.read..].find(text).unwrap() + text.len();
        self.keys.write_all(keys.as_bytes()).unwrap();
        self
    }

    /// The exit code, and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        while let Ok(more) = self.shown.recv_timeout(STUCK) {
            self.seen += &more;
        }
        (self.child.wait().unwrap().code(), self.seen)
    }
}

/// Every question, in order.
const QUESTIONS: [&str; 9] = [
    "Which model do tenants build on?",
    "A file with recorded requests, if there is one?",
    "How many tenants?",
    "How many requests a second, from all of them?",
    "How many tokens has an input?",
    "Within which time must they be answered?",
    "For which share of them?",
    "On which card?",
    "How many of them?",
];

#[test]
fn enter_takes_the_defaults() {
    let (asked, flags) = (folder(), folder());
    let mut terminal = Terminal::start(asked.path(), &["new", "x.yaml"]);
    for question in QUESTIONS {
        terminal.after(question, ENTER);
    }
    let (code, seen) = terminal.end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(
        seen.contains("x.yaml is written, and valid") && seen.contains("next: tenantry simulate x.yaml"),
        "{seen}"
    );
    good(flags.path(), &["new", "x.yaml", "--defaults"]);
    let [asked, flags] = [asked, flags].map(|folder| fs::read_to_string(folder.path().join("x.yaml")).unwrap());
    assert_eq!(asked, flags);
}

#[test]
fn what_does_not_fit_is_asked_again_and_what_flags_say_is_not_asked() {
    let folder = folder();
    let args = ["new", "x.yaml", "--card", "l4", "--gpus", "2", "--latency", "80ms"];
    let mut terminal = Terminal::start(folder.path(), &args);
    terminal
        .after(QUESTIONS[0], &format!("{DOWN}{ENTER}"))
        .after(QUESTIONS[1], "nothing.csv\r")
        .after("nothing.csv: ", "")
        .after(QUESTIONS[1], "none\r")
        .after(QUESTIONS[2], "many\r")
        .after("must be a whole number from 1 to 4294967295, got many", "")
        .after(QUESTIONS[2], "3000\r")
        .after(QUESTIONS[3], "200\r")
        .after("got 200", "")
        .after(QUESTIONS[3], "200/s\r")
        .after(QUESTIONS[4], ENTER)
        .after(QUESTIONS[6], "p99\r");
    let (code, seen) = terminal.end();
    assert_eq!(code, Some(0), "{seen}");
    let text = fs::read_to_string(folder.path().join("x.yaml")).unwrap();
    for line in [
        "backbone: bert-large",
        "count: 3000",
        "rate: 200/s",
        "latency: 80ms, at: p99",
        "card: l4",
        "gpus: 2",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_recording_says_who_asks_when() {
    let folder = folder();
    let at = folder.path();
    let log = "arrival_ns,tenant,input_tokens,output_tokens,class\n0,7,12,0,0\n1000000,0,20,0,0\n";
    fs::write(at.join("log.csv"), log).unwrap();
    let mut terminal = Terminal::start(at, &["new", "x.yaml", "--model", "bert-base"]);
    terminal.after(QUESTIONS[1], "log.csv\r");
    for question in &QUESTIONS[5..] {
        terminal.after(question, ENTER);
    }
    let (code, seen) = terminal.end();
    assert_eq!(code, Some(0), "{seen}");
    let text = fs::read_to_string(at.join("x.yaml")).unwrap();
    assert!(
        text.contains("count: 8") && text.contains("popularity: of-arrivals") && text.contains("log.csv"),
        "{text}"
    );
}

#[test]
fn who_leaves_leaves_nothing() {
    let folder = folder();
    // Escape ends a list; in a line of text it is no key.
    for (answered, leave) in [(0, CTRL_C), (0, "\x1b"), (2, CTRL_C), (7, CTRL_C)] {
        let mut terminal = Terminal::start(folder.path(), &["new", "x.yaml"]);
        for question in &QUESTIONS[..answered] {
            terminal.after(question, ENTER);
        }
        terminal.after(QUESTIONS[answered], leave);
        let (code, seen) = terminal.end();
        assert_eq!(code, Some(130), "{seen}");
        let end = seen.rfind("interrupted: nothing is written");
        // A list hides the cursor.
        let cursor = ["\x1b[?25h", "\x1b[?25l"].map(|code| seen.rfind(code));
        assert!(end.is_some() && cursor[0] > cursor[1], "{seen:?}");
        assert!(!folder.path().join("x.yaml").exists());
    }
}

#[test]
fn wrong_flags_are_told_of_before_anything_is_asked() {
    let folder = folder();
    let (code, seen) = Terminal::start(folder.path(), &["new", "x.yaml", "--rate", "200"]).end();
    assert_eq!(code, Some(2), "{seen}");
    assert!(
        seen.contains("workload.arrivals.poisson.rate") && !seen.contains("?"),
        "{seen}"
    );
    // Without a terminal nothing is asked.
    let output = tenantry(folder.path(), &["new", "x.yaml"]);
    assert!(output.status.success());
}

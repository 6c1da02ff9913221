//! The errors of a lane's ops. A member that fails gets one of a few reasons; what libtorch said of it would be lost.

use std::cell::RefCell;

use crate::error::ExecutorError;

/// What went wrong on one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneErrors {
    /// The lane's name.
    pub lane: String,
    /// How often something did.
    pub count: u64,
    /// What the first was.
    pub first: String,
}

thread_local! {
    /// Of the lane whose thread this is: how many, and the first.
    static SEEN: RefCell<Option<(u64, String)>> = const { RefCell::new(None) };
}

/// Keeps that an op, or what prepares for ops, failed on the calling lane's thread.
pub(super) fn note(error: &ExecutorError) {
    SEEN.with_borrow_mut(|seen| match seen {
        Some((count, _)) => *count += 1,
        None => *seen = Some((1, error.to_string())),
    });
}

/// What was kept on the calling thread, which is this lane's.
pub(super) fn noted(lane: &str) -> Option<LaneErrors> {
    let (count, first) = SEEN.take()?;
    Some(LaneErrors {
        lane: lane.to_owned(),
        count,
        first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_thread_is_kept_and_the_others_are_counted() {
        assert_eq!(noted("compute"), None);
        for got in ["-1", "-2", "-3"] {
            note(&ExecutorError::input("length", "at least 0", got));
        }
        let other_thread = std::thread::spawn(|| noted("copy")).join().unwrap();
        assert_eq!(other_thread, None);
        let LaneErrors { lane, count, first } = noted("compute").unwrap();
        assert_eq!((lane.as_str(), count), ("compute", 3));
        assert_eq!(first, "length: must be at least 0, got -1");
        assert_eq!(noted("compute"), None);
    }
}

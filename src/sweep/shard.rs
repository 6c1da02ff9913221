//! Which of a sweep's runs are whose.

use std::fmt;
use std::str::FromStr;

/// One of several parts of a sweep, written `3/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    index: usize,
    count: usize,
}

impl Shard {
    /// The whole sweep.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// Whether run number `run` is one of its. Shards have equally many runs, give or take one. They take turns, and
    /// each turn begins one later: were it always the same, a shard could get all runs of the slowest system.
    pub fn has(self, run: usize) -> bool {
        (run + run / self.count) % self.count == self.index
    }

    /// Whether there are others.
    pub fn is_part(self) -> bool {
        self.count > 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(index, count)| Some((index.parse::<usize>().ok()?, count.parse().ok()?)));
        match parsed {
            Some((index, count)) if 1 <= index && index <= count => Ok(Shard {
                index: index - 1,
                count,
            }),
            _ => Err(format!("must be I/N with I from 1 to N, such as 3/8, got {text}")),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_is_in_one_shard_and_each_shard_has_its_share_of_every_system() {
        let shards: Vec<Shard> = (1..=8).map(|index| format!("{index}/8").parse().unwrap()).collect();
        let systems = 4;
        let mut runs = [[0; 4]; 8];
        for run in 0..1000 {
            let whose: Vec<usize> = (0..8).filter(|&shard| shards[shard].has(run)).collect();
            assert_eq!(whose.len(), 1, "run {run}");
            runs[whose[0]][run % systems] += 1;
        }
        for shard in runs {
            assert!(shard.iter().all(|&count| (30..=33).contains(&count)), "{shard:?}");
        }
        assert!((0..1000).all(|run| Shard::WHOLE.has(run)));
    }

    #[test]
    fn shards_read_as_they_print() {
        assert_eq!("3/8".parse::<Shard>().unwrap().to_string(), "3/8");
        for text in ["0/8", "9/8", "3", "3/", "-1/2", "a/b", "1/0"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}

//! Which runs stand against which: a system's simulated ones beside those executed on a device.

use crate::curves::Run;
use crate::group::Group;

/// The two sides of a comparison; at least one is there.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// On the virtual machine.
    pub simulated: Option<Group<'a>>,
    /// On a device.
    pub executed: Option<Group<'a>>,
}

impl<'a> Pair<'a> {
    /// Every executed group with its simulated one, and every simulated group that was not executed. Nothing is left
    /// out, so that a system which only one machine could run is seen.
    pub fn all(runs: &'a [Run]) -> Vec<Pair<'a>> {
        let (simulated, executed): (Vec<_>, Vec<_>) = Group::all(runs).into_iter().partition(Group::is_virtual);
        let same = |a: &Group, b: &Group| a.system() == b.system() && a.parameters() == b.parameters();
        let mut pairs = Vec::new();
        for simulated in &simulated {
            let mut devices = executed.iter().filter(|group| same(group, simulated)).peekable();
            if devices.peek().is_none() {
                pairs.push(Pair {
                    simulated: Some(simulated.clone()),
                    executed: None,
                });
            }
            pairs.extend(devices.map(|executed| Pair {
                simulated: Some(simulated.clone()),
                executed: Some(executed.clone()),
            }));
        }
        let alone = executed.iter().filter(|group| !simulated.iter().any(|other| same(group, other)));
        pairs.extend(alone.map(|executed| Pair {
            simulated: None,
            executed: Some(executed.clone()),
        }));
        pairs
    }

    /// Either side: what they have in common can be asked of it.
    pub fn any(&self) -> &Group<'a> {
        self.simulated.as_ref().or(self.executed.as_ref()).expect("a pair has a side")
    }

    /// Simulated, executed: what either side has of it.
    pub(super) fn both<T>(&self, read: impl Fn(&Group<'a>) -> Option<T>) -> (Option<T>, Option<T>) {
        (
            self.simulated.as_ref().and_then(&read),
            self.executed.as_ref().and_then(&read),
        )
    }
}

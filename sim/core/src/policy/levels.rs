//! The multi-level queue with demotion: Arlo's request scheduler (section 3.4, Algorithm 1) and its two ablations.
//!
//! One level a runtime, by the longest request it serves; within a level, instances by their outstanding requests.
//! Deciding changes nothing: who dispatches a request, or sees one end, says so by [`Levels::load_changed`].

use super::load_index::{LoadIndex, NOBODY};
use crate::ids::InstanceId;

/// One runtime, as far as dispatching goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelSpec {
    /// The longest request that it serves, in tokens.
    pub max_length: u32,
    /// M: requests that one instance finishes within the SLO.
    pub capacity: u32,
}

/// How a level is chosen among those that are long enough and have an instance, the candidates, shortest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Algorithm 1: the first candidate whose least loaded instance has outstanding requests below a threshold share of
    /// its capacity; the first of all if none has.
    Demote {
        /// λ: the threshold of the first candidate. The paper has 0.85.
        threshold: f64,
        /// α: what the threshold is multiplied by from one candidate to the next. The paper has 0.9.
        decay: f64,
        /// L: how many candidates are looked at. The paper has 6.
        peek: usize,
    },
    /// Intra-group load balance (section 5.2.3, ILB): always the first candidate.
    LeastPadding,
    /// Inter-groups greedy (section 5.2.3, IG): the candidate with the least loaded instance; of equals the first.
    LeastLoaded,
    /// Bin packing (INFaaS, as section 5 describes it): of all candidates' instances with room the fullest, as a share
    /// of its room, of equals the first; the least loaded when none has room.
    Pack {
        /// An instance has room below this share of its capacity. INFaaS keeps instances below what their latency
        /// target allows.
        fill: f64,
    },
}

/// Instances by runtime and load, and the rule by which requests are dispatched to them.
#[derive(Clone, Debug)]
pub struct Levels {
    levels: Vec<Level>,
    /// Of each, ascending: side by side, so that the first that is long enough is found without a branch that a
    /// request's length would decide.
    max_lengths: Vec<u32>,
    /// Of each, its least loaded instance's load: side by side, since a decision compares several.
    heads: Vec<u32>,
    /// By instance: where it is.
    places: Vec<Option<Place>>,
    /// Whether the least loaded of all is chosen, where nothing else is.
    greedy: bool,
    peek: usize,
    /// By level and then by how many candidates were passed: the least load that is too much.
    too_much: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Level {
    instances: LoadIndex,
    /// Where requests are packed: the load from which an instance has no room; 0 elsewhere.
    full: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    level: u32,
    load: u32,
}

impl Levels {
    /// Levels without instances.
    ///
    /// # Panics
    /// When the levels' lengths do not ascend, a capacity is 0, or the rule's threshold or decay is not above 0 and at
    /// most 1.
    pub fn new(levels: &[LevelSpec], rule: Rule) -> Levels {
        let ascending = levels.windows(2).all(|pair| pair[0].max_length < pair[1].max_length);
        assert!(ascending, "levels are given by ascending length");
        assert!(
            levels.iter().all(|level| level.capacity > 0),
            "an instance serves something"
        );
        let (thresholds, greedy) = match rule {
            Rule::Demote { threshold, decay, peek } => {
                let is_share = |value: f64| value > 0.0 && value <= 1.0;
                assert!(
                    is_share(threshold) && is_share(decay),
                    "thresholds are shares of the capacity"
                );
                let decayed = std::iter::successors(Some(threshold), |threshold| Some(threshold * decay));
                (decayed.take(peek.min(levels.len())).collect(), false)
            }
            Rule::LeastPadding => (Vec::new(), false),
            Rule::LeastLoaded => (Vec::new(), true),
            Rule::Pack { fill } => {
                assert!(fill > 0.0 && fill <= 1.0, "room is a share of the capacity");
                (Vec::new(), true)
            }
        };
        let full = |level: &LevelSpec| match rule {
            Rule::Pack { fill } => least_at(fill, level.capacity).max(1),
            _ => 0,
        };
        let of_level = |level: &LevelSpec| {
            let capacity = level.capacity;
            thresholds.iter().map(move |&threshold| least_at(threshold, capacity))
        };
        Levels {
            too_much: levels.iter().flat_map(of_level).collect(),
            peek: thresholds.len(),
            greedy,
            max_lengths: levels.iter().map(|level| level.max_length).collect(),
            heads: vec![NOBODY; levels.len()],
            levels: levels
                .iter()
                .map(|level| Level {
                    instances: LoadIndex::default(),
                    full: full(level),
                })
                .collect(),
            places: Vec::new(),
        }
    }

    /// Where a request of `length` tokens goes: the least loaded instance, of equals the lowest, of the level that the
    /// rule chooses. None when no instance serves so long a request.
    pub fn dispatch(&self, length: u32) -> Option<InstanceId> {
        let shortest = self.max_lengths.partition_point(|&max_length| max_length < length);
        if self.packs() {
            // Of equals the first level: a candidate's instance number must not decide.
            let fullest = self.levels[shortest..].iter().filter_map(Level::fullest);
            if let Some((_, fullest)) = fullest.min_by_key(|&(left_ppm, _)| left_ppm) {
                return Some(fullest);
            }
        }
        let mut candidates = (shortest..).zip(&self.heads[shortest..]).filter(|&(_, &load)| load != NOBODY);
        if self.greedy {
            return candidates.min_by_key(|&(_, load)| load).and_then(|(at, _)| self.least_of(at));
        }
        let mut below = (0..self.peek)
            .zip(candidates.clone())
            .filter(|&(passed, (at, &load))| load < self.too_much[at * self.peek + passed]);
        let chosen = below.next().map(|(_, chosen)| chosen).or_else(|| candidates.next());
        chosen.and_then(|(at, _)| self.least_of(at))
    }

    /// The least loaded instance of a level, of equals the lowest.
    #[inline]
    fn least_of(&self, level: usize) -> Option<InstanceId> {
        self.levels[level].instances.least().map(|(_, least)| least)
    }

    /// Adds an instance with so many outstanding requests to a level.
    ///
    /// # Panics
    /// When there is no such level, or the instance has been added.
    pub fn add(&mut self, instance: InstanceId, level: usize, load: u32) {
        if self.places.len() <= instance.index() {
            self.places.resize(instance.index() + 1, None);
        }
        let place = &mut self.places[instance.index()];
        assert!(place.is_none(), "{instance} is added once");
        *place = Some(Place {
            level: level as u32,
            load,
        });
        self.change(level, |instances| instances.insert(load, instance));
    }

    /// Takes an instance out, so that nothing more is dispatched to it; tells its outstanding requests. To change its
    /// runtime, remove it and add it to the other level once it is loaded.
    ///
    /// # Panics
    /// When the instance is not there.
    pub fn remove(&mut self, instance: InstanceId) -> u32 {
        let place = self.place(instance);
        self.places[instance.index()] = None;
        self.change(place.level as usize, |instances| instances.remove(place.load, instance));
        place.load
    }

    /// Says that an instance has more or fewer outstanding requests than before.
    ///
    /// # Panics
    /// When the instance is not there, or would have fewer than none.
    pub fn load_changed(&mut self, instance: InstanceId, by: i32) {
        let place = self.places.get_mut(instance.index()).and_then(Option::as_mut);
        let place = place.expect("the instance has been added");
        let load = place.load.checked_add_signed(by).expect("loads are not negative");
        let was = std::mem::replace(&mut place.load, load);
        let level = place.level as usize;
        self.change(level, |instances| instances.change(instance, was, load));
    }

    /// Changes a level's instances, and with them what is known of their least loaded.
    #[inline]
    fn change(&mut self, level: usize, change: impl FnOnce(&mut LoadIndex)) {
        let instances = &mut self.levels[level].instances;
        change(instances);
        self.heads[level] = instances.least_load();
    }

    /// An instance's level and outstanding requests; none if it is not there.
    pub fn find(&self, instance: InstanceId) -> Option<(usize, u32)> {
        let place = (*self.places.get(instance.index())?)?;
        Some((place.level as usize, place.load))
    }

    /// Instances of a level.
    pub fn instances(&self, level: usize) -> usize {
        self.levels[level].instances.instances()
    }

    fn packs(&self) -> bool {
        self.levels.first().is_some_and(|level| level.full > 0)
    }

    fn place(&self, instance: InstanceId) -> Place {
        let place = self.places.get(instance.index()).copied().flatten();
        place.expect("the instance has been added")
    }
}

impl Level {
    /// Of the instances with room the fullest, and how much of its room is left in parts of a million.
    fn fullest(&self) -> Option<(u64, InstanceId)> {
        let (load, instance) = self.instances.most_below(self.full)?;
        let left = u64::from(self.full - load);
        Some((left * 1_000_000 / u64::from(self.full), instance))
    }
}

/// The least N with N / M not below a threshold, as Algorithm 1 divides: no floating point where requests are
/// dispatched.
fn least_at(threshold: f64, capacity: u32) -> u32 {
    let reaches = |load: u32| f64::from(load) / f64::from(capacity) >= threshold;
    let mut load = (threshold * f64::from(capacity)) as u32;
    while load > 0 && reaches(load - 1) {
        load -= 1;
    }
    while !reaches(load) {
        load += 1;
    }
    load
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PAPER: Rule = Rule::Demote {
        threshold: 0.85,
        decay: 0.9,
        peek: 6,
    };

    fn levels(specs: &[(u32, u32)], rule: Rule) -> Levels {
        let of = |&(max_length, capacity)| LevelSpec { max_length, capacity };
        Levels::new(&specs.iter().map(of).collect::<Vec<_>>(), rule)
    }

    /// Fig. 4: two instances of length 128, one of 256, one of 512, as busy as the snapshot says.
    fn figure_4(rule: Rule) -> Levels {
        let mut levels = levels(&[(128, 80), (256, 40), (512, 20)], rule);
        for (instance, (level, load)) in (0..).zip([(0, 78), (0, 79), (1, 28), (2, 6)]) {
            levels.add(InstanceId(instance), level, load);
        }
        levels
    }

    /// Requests of Fig. 4 that come to an instance which is full already, and so end after the SLO.
    fn violations(rule: Rule) -> (usize, usize) {
        let mut levels = figure_4(rule);
        let capacity = [80, 40, 20];
        let mut late = |length: u32, requests: usize| {
            let mut count = 0;
            for _ in 0..requests {
                let instance = levels.dispatch(length).expect("an instance serves 512");
                let (level, load) = levels.find(instance).expect("it was dispatched to");
                count += usize::from(load >= capacity[level]);
                levels.load_changed(instance, 1);
            }
            count
        };
        (late(100, 8), late(400, 14))
    }

    #[test]
    fn figure_4_least_padding_violates_five_and_greedy_eight() {
        assert_eq!(violations(Rule::LeastPadding), (5, 0));
        assert_eq!(violations(Rule::LeastLoaded), (0, 8));
    }

    #[test]
    fn figure_4_with_the_default_thresholds_demotes_too_few_to_the_middle() {
        // At λ α = 0.765 the 256 takes three (28 to 31 of 40), and the 512 the other five.
        assert_eq!(violations(PAPER), (0, 5));
        // The text's ending, "5 out of the first eight requests to GPU2", needs the 128s filled to the brim first.
        let brim = Rule::Demote {
            threshold: 1.0,
            decay: 0.9,
            peek: 6,
        };
        assert_eq!(violations(brim), (0, 0));
    }

    #[test]
    fn figure_5_demotes_by_one_level() {
        // Four runtimes; the heads of the second and third have 54 of 60 and 28 of 48. Lengths and the other two are
        // not in the text.
        let mut levels = levels(&[(128, 80), (256, 60), (384, 48), (512, 40)], PAPER);
        for (instance, (level, load)) in (0..).zip([(0, 10), (1, 54), (1, 58), (2, 28), (2, 40), (3, 1)]) {
            levels.add(InstanceId(instance), level, load);
        }
        assert_eq!(levels.dispatch(200), Some(InstanceId(3)));
        assert_eq!(levels.dispatch(100), Some(InstanceId(0)));
        assert_eq!(levels.dispatch(500), Some(InstanceId(5)));
        assert_eq!(levels.dispatch(513), None);
    }

    #[test]
    fn a_level_without_instances_is_no_candidate() {
        let mut levels = levels(&[(128, 10), (256, 10), (512, 10)], PAPER);
        assert_eq!(levels.dispatch(1), None);
        levels.add(InstanceId(7), 2, 8);
        // 0.8 is below λ, though not below λ α².
        levels.add(InstanceId(3), 1, 9);
        assert_eq!(levels.dispatch(1), Some(InstanceId(3)));
        assert_eq!(levels.remove(InstanceId(3)), 9);
        assert_eq!(levels.dispatch(1), Some(InstanceId(7)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u32, usize, u32),
        Remove(u32),
        Change(u32, i32),
        Dispatch(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => (0u32..40, 0usize..4, 0u32..12).prop_map(|(instance, level, load)| Step::Add(instance, level, load)),
            1 => (0u32..40).prop_map(Step::Remove),
            4 => (0u32..40, -2i32..4).prop_map(|(instance, by)| Step::Change(instance, by)),
            4 => (1u32..520).prop_map(Step::Dispatch),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// Algorithm 1 and the ablations as they are written, over a plain list.
    fn scan(
        instances: &BTreeMap<u32, (usize, u32)>,
        specs: &[(u32, u32)],
        rule: Rule,
        length: u32,
    ) -> Option<InstanceId> {
        let head = |at: usize| {
            let of_level = instances.iter().filter(|(_, place)| place.0 == at);
            of_level.map(|(&id, &(_, load))| (load, id)).min()
        };
        let candidates: Vec<_> = (0..specs.len())
            .filter(|&at| specs[at].0 >= length)
            .filter_map(|at| head(at).map(|(load, id)| (at, load, id)))
            .collect();
        let first = candidates.first()?;
        let chosen = match rule {
            Rule::LeastPadding => first,
            Rule::LeastLoaded => candidates.iter().min_by_key(|candidate| candidate.1)?,
            Rule::Pack { fill } => {
                let full = |at: usize| least_at(fill, specs[at].1).max(1);
                let room = |(&id, &(at, load)): (&u32, &(usize, u32))| {
                    let fits = specs[at].0 >= length && load < full(at);
                    fits.then(|| (u64::from(full(at) - load) * 1_000_000 / u64::from(full(at)), at, id))
                };
                if let Some((_, _, id)) = instances.iter().filter_map(room).min() {
                    return Some(InstanceId(id));
                }
                candidates.iter().min_by_key(|candidate| candidate.1)?
            }
            Rule::Demote { threshold, decay, peek } => {
                let mut threshold = threshold;
                let mut found = None;
                for candidate in candidates.iter().take(peek) {
                    if f64::from(candidate.1) / f64::from(specs[candidate.0].1) < threshold {
                        found = Some(candidate);
                        break;
                    }
                    threshold *= decay;
                }
                found.unwrap_or(first)
            }
        };
        Some(InstanceId(chosen.2))
    }

    proptest! {
        #[test]
        fn dispatching_is_what_a_scan_finds(
            steps in steps(),
            rule in prop::sample::select(vec![
                PAPER,
                Rule::Demote { threshold: 0.5, decay: 0.7, peek: 2 },
                Rule::Demote { threshold: 0.9, decay: 1.0, peek: 0 },
                Rule::LeastPadding,
                Rule::LeastLoaded,
                Rule::Pack { fill: 0.5 },
            ]),
        ) {
            let specs = [(64, 13), (128, 9), (256, 7), (512, 3)];
            let mut levels = levels(&specs, rule);
            let mut naive: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Add(instance, level, load) => {
                        naive.entry(instance).or_insert_with(|| {
                            levels.add(InstanceId(instance), level, load);
                            (level, load)
                        });
                    }
                    Step::Remove(instance) => {
                        if let Some((_, load)) = naive.remove(&instance) {
                            prop_assert_eq!(levels.remove(InstanceId(instance)), load);
                        }
                    }
                    Step::Change(instance, by) => {
                        if let Some((_, load)) = naive.get_mut(&instance)
                            && let Some(changed) = load.checked_add_signed(by)
                        {
                            *load = changed;
                            levels.load_changed(InstanceId(instance), by);
                        }
                    }
                    Step::Dispatch(length) => {
                        prop_assert_eq!(levels.dispatch(length), scan(&naive, &specs, rule, length));
                    }
                }
                for level in 0..specs.len() {
                    let there = naive.values().filter(|place| place.0 == level).count();
                    prop_assert_eq!(levels.instances(level), there);
                }
            }
        }
    }
}

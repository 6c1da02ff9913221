//! A point's measurements, and how well they tell its median.

use serde::{Deserialize, Serialize};
use tenantry_profiles::Stats;

/// Measurements of one point, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, us: f64) {
        self.0.push(us);
    }

    pub fn append(&mut self, mut other: Samples) {
        self.0.append(&mut other.0);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What came out.
    ///
    /// # Panics
    /// Without any measurement.
    pub fn stats(&self) -> Stats {
        Stats::of(&mut self.0.clone())
    }
}

/// Of a median's interval.
const CONFIDENCE: f64 = 0.95;

/// Measurements of one point, visit by visit.
///
/// What is measured in a row shares whatever the machine did then: a thousand measurements of one visit agree with each
/// other, and may all be a quarter above those of the next. So visits are what is drawn at random, and their medians
/// what tells how well the median is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Visits(Vec<Samples>);

impl Visits {
    /// Adds one, of at least one measurement.
    pub fn push(&mut self, visit: Samples) {
        self.0.push(visit);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether all are of at least one measurement, and each is a time: what was read from a file may be anything.
    pub fn are_sound(&self) -> bool {
        let is_time = |us: &f64| us.is_finite() && *us > 0.0;
        self.0.iter().all(|Samples(visit)| !visit.is_empty() && visit.iter().all(is_time))
    }

    /// What came out, each visit counting as much as any other: one in which the op was fast has more measurements.
    ///
    /// # Panics
    /// Without any measurement.
    pub fn stats(&self) -> Stats {
        let of_visit = |Samples(samples): &Samples| {
            let weight = 1.0 / samples.len() as f64;
            samples.iter().map(move |us| (*us, weight)).collect::<Vec<_>>()
        };
        Stats::weighted(&mut self.0.iter().flat_map(of_visit).collect::<Vec<_>>())
    }

    /// The first measurement of each visit, as a share of the median of all.
    pub fn deviations(&self) -> impl Iterator<Item = f64> + '_ {
        let median_us = self.stats().median_us;
        self.0.iter().map(move |visit| visit.0[0] / median_us)
    }

    /// Half the width of the median's 95 % confidence interval, as a share of the median; infinite where there are too
    /// few visits for one.
    pub fn relative_half_width(&self) -> f64 {
        let mut medians: Vec<f64> = self.0.iter().map(|visit| visit.stats().median_us).collect();
        let interval = median_interval(&mut medians);
        let middle = medians.get(medians.len() / 2);
        interval.zip(middle).map_or(f64::INFINITY, |((low, high), middle)| (high - low) / 2.0 / middle)
    }
}

/// The median's 95 % confidence interval; sorts the values. It lies between order statistics, so it assumes no
/// distribution, and outliers move it no further than any other value.
fn median_interval(values: &mut [f64]) -> Option<(f64, f64)> {
    values.sort_unstable_by(f64::total_cmp);
    // How many values lie below the true median is binomial: as many values are left out at either end as it seldom
    // comes to.
    let count = values.len();
    let mut ways = 0.5_f64.powi(count as i32);
    let mut beyond = 0.0;
    let mut left_out = 0;
    while beyond + ways <= (1.0 - CONFIDENCE) / 2.0 {
        beyond += ways;
        ways *= (count - left_out) as f64 / (left_out + 1) as f64;
        left_out += 1;
    }
    (left_out > 0).then(|| (values[left_out - 1], values[count - left_out]))
}

#[cfg(test)]
mod tests {
    use tenantry_traces::draw::{Draws, Purpose};

    use super::*;

    fn visits<'a>(of: impl IntoIterator<Item = &'a [f64]>) -> Visits {
        Visits(of.into_iter().map(|us| Samples(us.to_vec())).collect())
    }

    #[test]
    fn few_visits_have_no_interval() {
        assert_eq!(visits([&[5.0; 1000][..]; 5]).relative_half_width(), f64::INFINITY);
        assert_eq!(visits([&[5.0][..]; 6]).relative_half_width(), 0.0);
    }

    /// Of nine, ten and twelve values, from the second or third to the last but one or two: 96 to 98 %, by the binomial
    /// distribution.
    #[test]
    fn the_interval_is_as_narrow_as_the_confidence_allows() {
        let interval = |count: u32| median_interval(&mut (1..=count).map(f64::from).collect::<Vec<_>>());
        let expected = [
            (5, None),
            (6, Some((1.0, 6.0))),
            (9, Some((2.0, 8.0))),
            (10, Some((2.0, 9.0))),
            (12, Some((3.0, 10.0))),
        ];
        for (count, expected) in expected {
            assert_eq!(interval(count), expected, "{count} values");
        }
        assert_eq!(interval(60), Some((22.0, 39.0)));
    }

    /// A visit lasts for a time, so that it measures a fast op more often.
    #[test]
    fn visits_count_alike_however_often_they_measure() {
        let (fast, slow) = ([100.0; 50], [125.0; 2]);
        let stats = visits([&fast[..], &slow[..], &slow[..]]).stats();
        assert_eq!((stats.median_us, stats.count), (125.0, 54));
        assert!((stats.mean_us - 350.0 / 3.0).abs() < 1e-9, "{}", stats.mean_us);
    }

    #[test]
    fn outliers_do_not_widen_the_interval() {
        let disturbed = [100.0, 100.0, 1e6];
        assert_eq!(visits([&disturbed[..]; 20]).relative_half_width(), 0.0);
        let mut some = vec![&[100.0][..]; 18];
        some.extend([&[1e6][..]; 2]);
        assert_eq!(visits(some).relative_half_width(), 0.0);
    }

    /// However many measurements agree with their neighbours.
    #[test]
    fn visits_that_differ_widen_it() {
        let (fast, slow) = ([100.0; 500], [125.0; 500]);
        let width = visits([&fast[..], &slow[..]].repeat(10)).relative_half_width();
        assert!((width - 0.125).abs() < 0.01 || (width - 0.1).abs() < 0.01, "{width}");
    }

    /// Of many experiments, at least the promised share has the true median in its interval.
    #[test]
    fn the_interval_covers_the_median() {
        let draws = Draws::new(3, Purpose::Jitter);
        let experiments = 2000;
        for count in [6, 9, 40] {
            let covers = |experiment: u64| {
                let mut stream = draws.about(experiment);
                let mut values: Vec<f64> = (0..count).map(|_| stream.exponential()).collect();
                let (low, high) = median_interval(&mut values).unwrap();
                (low..=high).contains(&std::f64::consts::LN_2)
            };
            let covered = (0..experiments).filter(|&experiment| covers(experiment)).count();
            assert!(
                covered as f64 >= 0.94 * experiments as f64,
                "{covered} of {experiments} with {count} values"
            );
        }
    }
}

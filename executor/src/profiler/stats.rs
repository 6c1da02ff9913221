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

    /// Half the width of the median's 95 % confidence interval, as a share of the median; infinite where there are too few
    /// measurements for one.
    pub fn relative_half_width(&self) -> f64 {
        let interval = self.median_interval();
        interval.map_or(f64::INFINITY, |(low, high)| (high - low) / 2.0 / self.stats().median_us)
    }

    /// The median's 95 % confidence interval. It lies between order statistics, so it assumes no distribution, and outliers
    /// move it no further than any other measurement.
    fn median_interval(&self) -> Option<(f64, f64)> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let count = sorted.len() as f64;
        // How many measurements lie below the true median is binomial; 1.96 standard deviations of it to either side.
        let reach = 1.96 * count.sqrt() / 2.0;
        let (low, high) = ((count / 2.0 - reach).floor(), (count / 2.0 + reach).ceil());
        (low >= 0.0 && high < count).then(|| (sorted[low as usize], sorted[high as usize]))
    }
}

#[cfg(test)]
mod tests {
    use tenantry_traces::draw::{Draws, Purpose};

    use super::*;

    fn samples(values: impl IntoIterator<Item = f64>) -> Samples {
        Samples(values.into_iter().collect())
    }

    #[test]
    fn few_measurements_have_no_interval() {
        assert_eq!(samples([5.0; 3]).relative_half_width(), f64::INFINITY);
        assert_eq!(samples([5.0; 20]).relative_half_width(), 0.0);
    }

    #[test]
    fn outliers_do_not_widen_the_interval() {
        let mut values = vec![100.0; 60];
        values.extend([1e6; 6]);
        assert_eq!(samples(values).relative_half_width(), 0.0);
    }

    /// Of many experiments, at least the promised share has the true median in its interval.
    #[test]
    fn the_interval_covers_the_median() {
        let draws = Draws::new(3, Purpose::Jitter);
        let (experiments, count) = (2000, 40);
        let covers = |experiment: u64| {
            let mut stream = draws.about(experiment);
            let (low, high) = samples((0..count).map(|_| stream.exponential()))
                .median_interval()
                .unwrap();
            (low..=high).contains(&std::f64::consts::LN_2)
        };
        let covered = (0..experiments).filter(|&experiment| covers(experiment)).count();
        assert!(
            covered as f64 >= 0.94 * experiments as f64,
            "{covered} of {experiments}"
        );
    }
}

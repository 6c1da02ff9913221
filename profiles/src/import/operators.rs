//! Kernels' times by shape, as aiconfigurator has them: matrix products and attention, between measured shapes by
//! straight lines.

use std::collections::BTreeMap;

use super::US_PER_MS;
use super::draft::on_line;
use super::sheet::Sheet;
use super::slips::Slip;
use super::summary_stats::Times;
use crate::error::Invalid;

/// Times of `m` × `k` by `k` × `n`, in microseconds.
#[derive(Default)]
pub(super) struct Products {
    /// By (n, k), then ascending m.
    by_shape: BTreeMap<(u64, u64), Vec<(u64, Times)>>,
}

impl Products {
    pub fn read(&mut self, sheet: &Sheet) -> Result<(), Invalid> {
        sheet.once(!self.is_empty())?;
        for line in sheet.lines() {
            let shape = (line.positive("n")?, line.positive("k")?);
            let times = Times::only(line.time("latency_ms")? * US_PER_MS, 1).of(line);
            self.by_shape.entry(shape).or_default().push((line.positive("m")?, times));
        }
        self.by_shape.values_mut().for_each(pool);
        self.by_shape.values().try_for_each(|line| check(line, sheet))
    }

    pub fn is_empty(&self) -> bool {
        self.by_shape.is_empty()
    }

    /// The numbers of rows that were measured.
    pub fn rows(&self) -> Vec<u64> {
        self.by_shape
            .values()
            .next()
            .map(|line| line.iter().map(|(m, _)| *m).collect())
            .unwrap_or_default()
    }

    /// None beyond the measured shapes.
    pub fn us(&self, m: u64, n: u64, k: u64) -> Option<f64> {
        let (n_below, n_above) = neighbours(self.by_shape.keys().map(|(n, _)| *n), n)?;
        let (k_below, k_above) = neighbours(self.by_shape.keys().map(|(_, k)| *k), k)?;
        let at = |n: u64, k: u64| {
            let line = self.by_shape.get(&(n, k))?;
            let measured = line.first()?.0..=line.last()?.0;
            measured.contains(&m).then(|| on_line(line, m as f64).median_us)
        };
        let between = |low: f64, high: f64, (below, above): (u64, u64), x: u64| match below == above {
            true => low,
            false => low + (high - low) * (x - below) as f64 / (above - below) as f64,
        };
        let along_k = |n: u64| Some(between(at(n, k_below)?, at(n, k_above)?, (k_below, k_above), k));
        Some(between(along_k(n_below)?, along_k(n_above)?, (n_below, n_above), n))
    }
}

/// Orders a line, and makes one of what was measured several times: the source has some shapes twice.
fn pool(line: &mut Vec<(u64, Times)>) {
    line.sort_by_key(|(at, _)| *at);
    let pooled = line.chunk_by(|a, b| a.0 == b.0).map(|alike| {
        let times = alike.iter().map(|(_, times)| *times).collect();
        (alike[0].0, Times::pooled(times))
    });
    *line = pooled.collect();
}

/// Refuses a line with a figure in another unit, which a layer composed of it would no longer tell the place of.
fn check(line: &[(u64, Times)], sheet: &Sheet) -> Result<(), Invalid> {
    let points: Vec<([u64; 1], Times)> = line.iter().map(|(at, times)| ([*at], *times)).collect();
    match Slip::find(&points) {
        None => Ok(()),
        Some(slip) => Err(slip.invalid(sheet.file(), "latency_ms")),
    }
}

/// The nearest values on both sides; twice the same where it is one of them.
fn neighbours(values: impl Iterator<Item = u64>, x: u64) -> Option<(u64, u64)> {
    let (mut below, mut above) = (None, None);
    for value in values {
        if value <= x && below.is_none_or(|below| below < value) {
            below = Some(value);
        }
        if value >= x && above.is_none_or(|above| above > value) {
            above = Some(value);
        }
    }
    below.zip(above)
}

/// Heads, key and value heads, width of each.
type Heads = (u64, u64, u64);

/// By length, then ascending batch.
type ByLength = BTreeMap<u64, Vec<(u64, Times)>>;

/// Times of attention, in microseconds.
#[derive(Default)]
pub(super) struct Attention {
    by_heads: BTreeMap<Heads, ByLength>,
}

impl Attention {
    /// `length` names the column of the sequences' length; without a column of key and value heads, there are as many
    /// as heads.
    pub fn read(&mut self, sheet: &Sheet, length: &str) -> Result<(), Invalid> {
        sheet.once(!self.is_empty())?;
        for line in sheet.lines() {
            let heads = line.positive("num_heads")?;
            let kv_heads = match sheet.has("num_key_value_heads") {
                true => line.whole("num_key_value_heads")?,
                false => heads,
            };
            let key = (heads, kv_heads, line.whole("head_dim")?);
            let times = Times::only(line.time("latency_ms")? * US_PER_MS, 1).of(line);
            let lengths = self.by_heads.entry(key).or_default();
            lengths.entry(line.whole(length)?).or_default().push((line.positive("batch_size")?, times));
        }
        let lines = self.by_heads.values_mut().flat_map(BTreeMap::values_mut);
        lines.for_each(pool);
        let mut lines = self.by_heads.values().flat_map(BTreeMap::values);
        lines.try_for_each(|line| check(line, sheet))
    }

    pub fn is_empty(&self) -> bool {
        self.by_heads.is_empty()
    }

    /// The lengths measured for these heads.
    pub fn lengths(&self, heads: u64, kv_heads: u64, width: u64) -> Vec<u64> {
        let found = self.found(heads, kv_heads, width);
        found.map(|(lengths, _)| lengths.keys().copied().collect()).unwrap_or_default()
    }

    /// None beyond what was measured.
    pub fn us(&self, batch: u64, length: u64, heads: u64, kv_heads: u64, width: u64) -> Option<f64> {
        let (lengths, groups) = self.found(heads, kv_heads, width)?;
        let line = lengths.get(&length)?;
        let batch = batch * groups;
        let measured = line.first()?.0..=line.last()?.0;
        measured.contains(&batch).then(|| on_line(line, batch as f64).median_us)
    }

    /// The table of these heads and 1; or, as heads never meet, that of a part of them and how many such parts there
    /// are: a batch of 4 with 32 heads is one of 16 with 8.
    fn found(&self, heads: u64, kv_heads: u64, width: u64) -> Option<(&ByLength, u64)> {
        (1..=kv_heads).filter(|groups| kv_heads.is_multiple_of(*groups)).find_map(|groups| {
            let lengths = self.by_heads.get(&(heads / groups, kv_heads / groups, width))?;
            Some((lengths, groups))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_between_measured_shapes_lie_between_their_times() {
        let text = "m,n,k,latency_ms\n1,64,32,0.001\n4,64,32,0.004\n1,128,32,0.002\n4,128,32,0.008\n";
        let mut products = Products::default();
        products.read(&Sheet::read("gemm.csv", text).unwrap()).unwrap();
        assert_eq!(products.rows(), [1, 4]);
        assert_eq!(products.us(4, 64, 32), Some(4.0));
        assert_eq!(products.us(2, 96, 32), Some(3.0));
        assert_eq!((products.us(5, 64, 32), products.us(1, 64, 33)), (None, None));
    }

    #[test]
    fn a_kernel_in_another_unit_is_refused_in_its_own_line() {
        let text = "m,n,k,latency_ms\n1,64,32,0.001\n2,64,32,2.0\n3,64,32,0.003\n4,64,32,0.004\n";
        let refused = Products::default().read(&Sheet::read("gemm.csv", text).unwrap());
        let message = refused.unwrap_err().to_string();
        assert!(
            message.starts_with("gemm.csv:3: latency_ms: must be at most 5 times"),
            "{message}"
        );
        let text = "batch_size,isl,num_heads,head_dim,latency_ms\n1,16,4,64,0.001\n8,16,4,64,0.000008\n";
        let refused = Attention::default().read(&Sheet::read("attention.csv", text).unwrap(), "isl");
        let message = refused.unwrap_err().to_string();
        assert!(
            message.starts_with("attention.csv:3: latency_ms: must be at least 1/5 of"),
            "{message}"
        );
    }

    #[test]
    fn heads_that_were_not_measured_are_batches_of_those_that_were() {
        let text = "batch_size,isl,num_heads,head_dim,latency_ms\n1,16,4,64,0.001\n8,16,4,64,0.008\n";
        let mut attention = Attention::default();
        attention.read(&Sheet::read("attention.csv", text).unwrap(), "isl").unwrap();
        assert_eq!(attention.us(2, 16, 4, 4, 64), Some(2.0));
        assert_eq!(attention.us(2, 16, 12, 12, 64), Some(6.0));
        assert_eq!(attention.us(2, 16, 6, 6, 64), None);
        assert_eq!(
            attention.us(3, 16, 12, 12, 64),
            None,
            "a batch of nine was not measured"
        );
    }
}

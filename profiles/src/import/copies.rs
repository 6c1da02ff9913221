//! Published bandwidths of copies from the host to a device.

use super::draft::Draft;
use super::gpus::Gpu;
use super::sheet::{Line, Sheet};
use super::summary_stats::Times;
use crate::error::Invalid;
use crate::family::Family;
use crate::keys::Direction;
use crate::rows::CopyRow;
use crate::stats::middle;

/// Bandwidths tell nothing of small copies. A copy's start takes some 10 µs, which aiconfigurator's own specifications
/// have too (`p2p_latency_s`); below about 100 KB it is all that counts.
const START_US: f64 = 10.0;

const BYTES: [u64; 5] = [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28];

/// How many times the datasheet's bandwidth of the link a published one may be.
const LINKS_MOST: f64 = 2.0;

/// How methods end that copy by kernels instead of copy engines, where a sheet says so.
const BY_KERNELS: &str = "_sm";
/// Copies that are not what a server does: another socket's memory, buffers that no longer fit one mapping, kernels
/// instead of copy engines, a card that the author calls anomalous.
const SPECIAL: [&str; 3] = ["remote socket", "very large buffer", "SM copy kernel"];

pub(super) fn import(sheets: &[Sheet], gpu: &Gpu, draft: &mut Draft) -> Result<(), Invalid> {
    let Some(link) = gpu.link() else {
        let must = "a GPU with a link of PCIe x16, which these bandwidths are of";
        return Err(Invalid::argument("--gpu", must, gpu.sheet.name.as_str()));
    };
    let (mut own, mut of_link) = (Vec::new(), Vec::new());
    for sheet in sheets {
        for line in sheet.lines() {
            if is_plain(sheet, line)? && line.text("link")? == link {
                let gigabytes_per_s = bandwidth(line, gpu)?;
                of_link.push(gigabytes_per_s);
                let name = line.text("gpu")?;
                if gpu.copies.is_some_and(|own| name.contains(own)) {
                    own.push(gigabytes_per_s);
                }
            }
        }
    }
    let (mut bandwidths, whose) = match (own.is_empty(), of_link.is_empty()) {
        (false, _) => (own, gpu.sheet.product.as_str()),
        (true, false) => (of_link, "other cards on the same link"),
        (true, true) => {
            let must = format!("that of this GPU ({link}) in some row");
            return Err(sheets.first().map_or_else(
                || Invalid::argument("FILES", "at least one", "none"),
                |sheet| sheet.invalid("link", must, "no such row"),
            ));
        }
    };
    bandwidths.sort_by(f64::total_cmp);
    let gigabytes_per_s = middle(&bandwidths);
    let bytes_per_us = 1e3 * gigabytes_per_s;
    let label = format!("direction={} pinned=true", Direction::HostToDevice);
    let source = format!(
        "published bandwidths of {link} ({whose}): the median of {} is {} GB/s; {START_US} µs to start a copy are assumed",
        bandwidths.len(),
        (gigabytes_per_s * 1e3).round() / 1e3,
    );
    draft.origin(
        Family::Copy,
        &label,
        &source,
        Some("±15 % for megabytes and more, unknown below".to_string()),
    );
    draft.tables.copy.extend(BYTES.map(|bytes| CopyRow {
        direction: Direction::HostToDevice,
        pinned: true,
        bytes,
        stats: Times::only(START_US + bytes as f64 / bytes_per_us, 1).stats(),
    }));
    Ok(())
}

/// In GB/s. Far above what the datasheet says of the link, it is in another unit.
fn bandwidth(line: Line, gpu: &Gpu) -> Result<f64, Invalid> {
    let link = gpu.sheet.link / 1e9;
    let must = format!("above 0 and up to {LINKS_MOST} times the {link} GB/s of the datasheet's link");
    line.number("bandwidth_GBps", |number| number > 0.0 && number <= LINKS_MOST * link)?
        .ok_or_else(|| line.invalid("bandwidth_GBps", &must))
}

fn is_plain(sheet: &Sheet, line: Line) -> Result<bool, Invalid> {
    let note = line.text("note")?;
    let by_kernels = sheet.has("method") && line.text("method")?.ends_with(BY_KERNELS);
    let special = by_kernels || SPECIAL.iter().any(|special| note.contains(special));
    Ok(line.text("direction")? == "h2d" && line.text("host_memory")? == "pinned" && !special)
}

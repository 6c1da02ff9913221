//! Published copies.

use tenantry_profiles::ImportSource;

use super::import;

#[test]
fn published_copies_are_a_start_and_a_bandwidth() {
    let header = "gpu,link,direction,host_memory,bandwidth_GBps,note\n";
    let own = format!(
        "{header}Tesla V100,PCIe 3.0 x16,h2d,pinned,12.0,\nTesla V100,PCIe 3.0 x16,d2h,pinned,13.0,\n\
         Tesla V100,PCIe 3.0 x16,h2d,pinned,3.8,remote socket\nP100,PCIe 3.0 x16,h2d,pinned,10.0,\nP100,PCIe 3.0 x16,h2d,pageable,6.0,\n"
    );
    let copy = |gpu: &str| {
        let card = import(ImportSource::HostDeviceBandwidth, gpu, &[], &[&own]).unwrap();
        let row = card.tables.copy.last().unwrap().clone();
        assert!(row.pinned && row.bytes == 1 << 28);
        row.stats.median_us
    };
    let us = |bytes_per_us: f64| 10.0 + f64::from(1 << 28) / bytes_per_us;
    assert!((copy("v100-16g") / us(12e3) - 1.0).abs() < 1e-3);
    // Of the T4 nobody published any: the middle of its link's.
    assert!((copy("t4") / us(11e3) - 1.0).abs() < 1e-3);
    // Kernels that copy are no copy engine.
    let by_method = own.replace("note\n", "note,method\n").replace(",\n", ",,memcpy_ce\n");
    let by_method = by_method.replace("remote socket\n", "remote socket,memcpy_ce\n");
    let by_method = by_method.replace("12.0,,memcpy_ce", "12.0,,memcpy_sm");
    let by_engine = import(ImportSource::HostDeviceBandwidth, "t4", &[], &[&by_method]).unwrap();
    let last_us = by_engine.tables.copy.last().unwrap().stats.median_us;
    assert!((last_us / us(10e3) - 1.0).abs() < 1e-3, "{last_us}");
    // No word, no card that copies nothing, and no MB/s.
    for wrong in ["fast", "0", "NaN", "inf", "12000"] {
        let table = own.replace("12.0", wrong);
        assert_eq!(
            import(ImportSource::HostDeviceBandwidth, "t4", &[], &[&table]).unwrap_err(),
            format!(
                "0.csv:2: bandwidth_GBps: must be above 0 and up to 2 times the 16 GB/s of the datasheet's link, got \
                 \"{wrong}\""
            )
        );
    }
}

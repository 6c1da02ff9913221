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
    // Of the T4 nobody published any: the middle one of its link.
    assert!((copy("t4") / us(12e3) - 1.0).abs() < 1e-3);
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

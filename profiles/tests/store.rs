//! A card survives the way to disk and back, and nothing is lost when it replaces another.

use std::fs;

use proptest::prelude::*;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, CopyRow, Direction, Stats, Tables};

#[test]
fn saving_and_loading_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/card");
    let card = synthetic_card();
    card.save(&path).unwrap();
    let loaded = Card::load(&path).unwrap();
    assert_eq!(loaded.digest(), card.digest());
    assert_eq!(
        Card {
            tables: Tables::default(),
            ..loaded
        },
        Card {
            tables: Tables::default(),
            ..card
        }
    );
}

#[test]
fn replacing_a_profile_drops_its_tables_and_keeps_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    synthetic_card().save(&path).unwrap();
    fs::write(path.join("README.md"), "mine").unwrap();
    fs::create_dir(path.join("plots")).unwrap();

    let mut smaller = synthetic_card();
    smaller.tables.adapter.clear();
    smaller.save(&path).unwrap();
    assert_eq!(Card::load(&path).unwrap().digest(), smaller.digest());
    assert_eq!(fs::read_to_string(path.join("README.md")).unwrap(), "mine");
    assert!(path.join("plots").is_dir());
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn a_folder_of_something_else_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.tex"), "years of work").unwrap();
    let message = synthetic_card().save(folder.path()).unwrap_err().to_string();
    assert!(
        message.ends_with("must be writable, got: it holds something else than a profile"),
        "{message}"
    );
    assert!(folder.path().join("thesis.tex").exists());
}

#[test]
fn cards_are_found_by_path_and_by_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("profiles/cards/mine");
    synthetic_card().save(&path).unwrap();
    let search = [root.path().join("elsewhere"), root.path().to_path_buf()];
    assert_eq!(Card::find("mine", &search).unwrap().digest(), synthetic_card().digest());
    assert_eq!(
        Card::find(path.to_str().unwrap(), &[]).unwrap().digest(),
        synthetic_card().digest()
    );
    assert!(Card::available(&search).contains(&"mine".to_string()));
}

#[test]
fn every_embedded_card_is_sound() {
    for name in Card::embedded_names() {
        let card = Card::embedded(name).unwrap().unwrap();
        assert_eq!(card.name, name, "a card is called as its folder");
    }
    assert!(Card::embedded("no such card").unwrap().is_none());
}

#[test]
fn the_digest_depends_on_content_alone() {
    let card = synthetic_card();
    let mut shuffled = card.clone();
    shuffled.tables.encoder_layer.reverse();
    shuffled.tables.copy.rotate_left(3);
    assert_eq!(shuffled.digest(), card.digest());
    let mut other = card.clone();
    other.tables.copy[0].stats.count += 1;
    assert_ne!(other.digest(), card.digest());
    let mut noted = card.clone();
    noted.provenance.notes.push("another".into());
    assert_ne!(noted.digest(), card.digest());
}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_measured_numbers_survive(medians_us in prop::collection::vec(1e-3..1e9_f64, 1..20)) {
        let mut medians_us = medians_us;
        medians_us.sort_by(f64::total_cmp);
        let mut card = synthetic_card();
        let row = |(index, median_us): (usize, &f64)| CopyRow {
            direction: Direction::HostToDevice,
            pinned: true,
            bytes: 1 << index,
            stats: Stats {
                count: 7,
                mean_us: median_us * 1.05,
                median_us: *median_us,
                p05_us: median_us * 0.9,
                p95_us: median_us * 1.1,
                p99_us: median_us * 1.3,
            },
        };
        card.tables.copy = medians_us.iter().enumerate().map(row).collect();
        let folder = tempfile::tempdir().unwrap();
        card.save(&folder.path().join("card")).unwrap();
        prop_assert_eq!(Card::load(&folder.path().join("card")).unwrap().tables.copy, card.tables.copy);
    }
}

//! What a table says of itself: how far it is off, and what it does not have.

use super::*;

/// A head for eight that took less than one for four: both are priced half-way between, and the table says so.
#[test]
fn prices_that_were_moved_to_rise_are_told() {
    let moved = |card: &Card| {
        let tables = describe(card);
        let head = tables.iter().find(|table| table.family == Family::Head && table.table.contains("tiny"));
        head.unwrap().moved
    };
    let mut card = synthetic_card();
    assert_eq!((moved(&card).points, moved(&card).farthest), (0, 0.0));
    for row in &mut card.tables.head {
        if row.model == "tiny" && row.batch == 8 {
            row.stats = Stats::of(&mut [11.0]);
        }
    }
    assert_eq!(card.head(&tiny(), DType::F32, 2).unwrap().cost(4).median_ns, 11_500);
    // Of each number of classes.
    let classes: std::collections::BTreeSet<u32> = card.tables.head.iter().map(|row| row.classes).collect();
    assert_eq!(moved(&card).points, 2 * classes.len());
    assert!((moved(&card).farthest - 0.5 / 11.0).abs() < 1e-12);
}

/// Where points were held out, they and not the table's own tell how far its prices are off; and they price nothing.
#[test]
fn held_out_points_tell_the_error_and_price_nothing() {
    let whole = synthetic_card();
    let mut card = whole.clone();
    let of_card = card.encoder_layer(&tiny(), DType::F32).unwrap();
    // One as the table has it, and three that take a tenth longer.
    for (tokens, longer) in [(20, 1.0), (30, 1.1), (50, 1.1), (70, 1.1001)] {
        let us = of_card.cost(3, tokens).median_ns as f64 / 1e3 * longer;
        card.held_out.encoder_layer.push(EncoderLayerRow {
            model: "tiny".to_string(),
            dtype: DType::F32,
            batch: 3,
            tokens,
            stats: Stats::of(&mut [us]),
        });
    }
    let error = |card: &Card| {
        let of_table = |error: &TableError| error.family == Family::EncoderLayer && error.table.contains("model=tiny ");
        leave_out_errors(card).into_iter().find(of_table).unwrap()
    };
    let held_out = error(&card);
    assert_eq!((held_out.of, held_out.predictions), (LeftOut::HeldOut, 4));
    let tenth = 1.0 - 1.0 / 1.1;
    assert!(
        (held_out.median - tenth).abs() < 1e-4 && held_out.p95 == held_out.worst.error.abs(),
        "{held_out:?}"
    );
    // It is priced at less than it takes.
    let worst = &held_out.worst;
    assert!(
        worst.at == [3, 70] && (worst.error + 1.0 - 1.0 / 1.1001).abs() < 1e-4,
        "{worst:?}"
    );
    assert_eq!(error(&whole).of, LeftOut::Own);
    let cost = |card: &Card| card.encoder_layer(&tiny(), DType::F32).unwrap().cost(3, 50);
    assert_eq!(cost(&card), cost(&whole));
}

/// Next to nothing, twice over, is next to nothing still.
#[test]
fn what_adds_to_work_is_judged_with_that_work() {
    let mut card = synthetic_card();
    card.tables.copy_resume = [(100, 1.0), (200, 1.0), (300, 3.0)]
        .map(|(idle_us, extra_us)| CopyResumeRow {
            idle_us,
            work_us: 499,
            stats: stats(extra_us),
        })
        .to_vec();
    let errors = leave_out_errors(&card);
    let error = errors.iter().find(|error| error.family == Family::CopyResume).unwrap();
    // (1 + 3) / 2 was expected of the second, and it is 1 µs beside the 499 of the copy.
    assert!(
        error.predictions == 1 && (error.median - 1.0 / 500.0).abs() < 1e-12,
        "{error:?}"
    );
}

/// Published are bandwidths, of which copies of any size are made.
#[test]
fn imported_copies_were_not_measured() {
    let card = Card::embedded("rtx4090").unwrap().unwrap();
    let tables = describe(&card);
    let measured = |family| tables.iter().find(|table| table.family == family).unwrap().measurements;
    assert_eq!(measured(Family::Copy), None);
    assert!(measured(Family::DecoderDense) > Some(0));
}

/// Hand-overs are priced by the nearest rhythm: what lies between two costs what the one in the proportion nearest to
/// it does.
#[test]
fn rhythms_are_judged_as_they_are_priced() {
    let mut card = synthetic_card();
    card.tables.hand_over = [(1, 4.0), (10, 40.0), (1000, 60.0)]
        .map(|(pause_us, us)| HandOverRow {
            operation: DispatchOperation::Wake,
            other_cores: OtherCores::Idle,
            pause_us,
            work_us: 60,
            stats: stats(us),
        })
        .to_vec();
    let errors = leave_out_errors(&card);
    let error = errors.iter().find(|error| error.family == Family::HandOver).unwrap();
    // As after a pause of 1 µs, which is nearer to 10 than 1000 is: 36 µs of 40 and the 60 of the work.
    assert!(
        error.predictions == 1 && (error.worst.error + 36.0 / 100.0).abs() < 1e-12,
        "{error:?}"
    );
}

#[test]
fn covered_is_what_was_measured() {
    let card = synthetic_card();
    let surface = card.encoder_layer(&tiny(), DType::F32).unwrap();
    assert!(surface.covers(1, 16) && surface.covers(32, 128) && surface.covers(5, 77));
    assert!(!surface.covers(33, 128) && !surface.covers(1, 15) && !surface.covers(1, 129));
    assert!(card.head(&tiny(), DType::F32, 2).unwrap().covers(1));
    let head = card.head(&tiny(), DType::F32, 17).unwrap();
    assert!(!head.covers(1), "no head of 17 classes was measured");
    // Whatever the batch, it is the classes that are beyond.
    for batch in [1, 4, 1 << 20] {
        let beyond = head.beyond(batch).unwrap();
        assert_eq!((beyond.axis, beyond.asked), ("classes", 17));
    }
}

#[test]
fn missing_tables_name_the_command_that_measures_them() {
    let card = synthetic_card();
    let large = ModelShape::builtin("bert-large").unwrap();
    assert_eq!(
        card.encoder_layer(&large, DType::F32).unwrap_err().to_string(),
        "card synthetic: encoder_layer: must hold model=bert-large dtype=f32, got model=tiny dtype=f32, \
         model=bert-base dtype=f32; measure it with `tenantry profile --device cpu --models bert-large`"
    );
    // Where the card has just that in another number format, this is what is near.
    assert_eq!(
        card.encoder_layer(&tiny(), DType::F16).unwrap_err().to_string(),
        "card synthetic: encoder_layer: must hold model=tiny dtype=f16, got model=tiny dtype=f32, \
         model=bert-base dtype=f32; did you mean dtype: f32? If not, measure it with `tenantry profile --device cpu \
         --models tiny`"
    );
    assert_eq!(
        card.head(&ModelShape { hidden: 256, ..tiny() }, DType::F32, 2).unwrap_err().to_string(),
        "card synthetic: head: must hold model=tiny dtype=f32, got those of another model of that name \
         (hidden 128, not 256); measure it with `tenantry profile --device cpu --models tiny`"
    );
    assert!(
        card.encoder_layer(&ModelShape { layers: 24, ..tiny() }, DType::F32).is_ok(),
        "costs are per layer"
    );
    let mut whole = card.clone();
    whole.tables.text_pass.push(TextPassRow {
        model: "tiny".into(),
        dtype: DType::F32,
        attended: false,
        batch: 1,
        tokens: 8,
        stats: Stats::exact(10.0),
    });
    assert!(whole.text_pass(&tiny(), DType::F32, false).unwrap().is_some());
    let deeper = whole.text_pass(&ModelShape { layers: 24, ..tiny() }, DType::F32, false);
    assert!(deeper.unwrap_err().to_string().contains("another model of that name (layers 2, not 24)"));

    let mut derived = card.clone();
    derived.provenance.command = "tenantry profile derive --datasheet mine.yaml --models tiny".into();
    let message = derived.encoder_layer(&large, DType::F32).unwrap_err();
    let message = message.asked_by("s.yaml").to_string();
    assert!(
        message.ends_with("model=bert-base dtype=f32; its datasheet gives no more"),
        "{message}"
    );

    let mut without = card.clone();
    without.tables.copy.clear();
    assert_eq!(
        without.copy(Direction::HostToDevice, true).unwrap_err().to_string(),
        "card synthetic: copy: must hold direction=host-to-device pinned=true, got no table; \
         measure it with `tenantry profile --device cpu`"
    );
    let mut with_a_hole = card.clone();
    with_a_hole.tables.encoder_layer.retain(|row| (row.batch, row.tokens) != (4, 64));
    let message = with_a_hole.encoder_layer(&tiny(), DType::F32).unwrap_err().to_string();
    assert!(
        message.contains("got no row for batch=4 tokens=64 (1 missing in all)"),
        "{message}"
    );
}

#[test]
fn a_left_out_point_is_predicted_from_its_neighbours() {
    // Along tokens, 64 lies 48/112 of the way from 16 to 128; 80 is 10 % less than what is measured there.
    let mut card = layers(|_, tokens| match tokens {
        16 => 50.0,
        64 => 72.0,
        _ => 120.0,
    });
    let summary = |card: &Card| describe(card).into_iter().next().unwrap();
    assert_eq!(summary(&card).measurements, None, "it is derived");
    card.provenance.source = Source::Measured;
    let summary = summary(&card);
    assert_eq!((summary.points, summary.measurements), (12, Some(120)));
    assert_eq!(summary.axes[0].values, [1, 4, 8, 32]);
    let error = summary.error.unwrap();
    // Four along tokens (each batch), six along batch (each inner batch and length), the latter without error.
    assert_eq!(error.predictions, 10);
    assert_eq!(error.median, 0.0);
    assert!((error.p95 - 8.0 / 72.0).abs() < 1e-12);
}

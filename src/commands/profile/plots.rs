//! What the page of a profile draws: costs over batch and length, copies as bandwidth, and the roofline.

use tenantry_profiles::Card;
use tenantry_profiles::roofline::encoder_layer_work;
use tenantry_reports::page::Curves;

/// The charts of a card; those without lines are left out by the page.
pub fn curves(card: &Card) -> Vec<Curves> {
    vec![
        by_tokens(card),
        by_batch(card),
        roofline(card),
        copies(card),
        dense(card),
        decode(card),
    ]
}

type Points = Vec<(f64, f64)>;

/// Points under the name that each has, in the order in which names first appear, ascending.
fn grouped(points: impl Iterator<Item = (String, (f64, f64))>) -> Vec<(String, Points)> {
    let mut lines: Vec<(String, Points)> = Vec::new();
    for (name, point) in points {
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, line)) => line.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    for (_, line) in &mut lines {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// The values nearest to the least, the middle and the most: as many as a chart can tell apart.
fn few(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    let Some(last) = values.len().checked_sub(1) else {
        return values;
    };
    let mut few = vec![values[0], values[last / 2], values[last]];
    few.dedup();
    few
}

fn by_tokens(card: &Card) -> Curves {
    let rows = &card.tables.encoder_layer;
    let batches = few(rows.iter().map(|row| row.batch));
    let points = rows.iter().filter(|row| batches.contains(&row.batch)).map(|row| {
        let name = format!("{} {}, batch {}", row.model, row.dtype, row.batch);
        (name, (f64::from(row.tokens), row.stats.median_us / 1e3))
    });
    Curves {
        id: "tokens",
        title: "Encoder layer by length",
        caption: "The median of one layer's forward pass (up) by the tokens of each sequence (across).",
        x: "Tokens",
        y: "ms",
        lines: grouped(points),
    }
}

fn by_batch(card: &Card) -> Curves {
    let rows = &card.tables.encoder_layer;
    let lengths = few(rows.iter().map(|row| row.tokens));
    let points = rows.iter().filter(|row| lengths.contains(&row.tokens)).map(|row| {
        let name = format!("{} {}, {} tokens", row.model, row.dtype, row.tokens);
        (name, (f64::from(row.batch), row.stats.median_us / 1e3))
    });
    Curves {
        id: "batch",
        title: "Encoder layer by batch",
        caption: "The median of one layer's forward pass (up) by the sequences in the batch (across).",
        x: "Sequences",
        y: "ms",
        lines: grouped(points),
    }
}

/// What each measured layer reached, over its operations a byte. Where the line is level the card computes, where it rises it
/// waits for memory or launches.
fn roofline(card: &Card) -> Curves {
    let points = card.tables.encoder_layer.iter().filter_map(|row| {
        let work = encoder_layer_work(&card.model(&row.model)?, row.dtype, row.batch, row.tokens);
        let bytes = work.streamed_bytes + work.moved_bytes;
        let name = format!("{} {}", row.model, row.dtype);
        Some((name, (work.flops / bytes, work.flops / row.stats.median_us / 1e6)))
    });
    let mut lines = grouped(points);
    for (_, line) in &mut lines {
        // Several shapes can have one intensity: the best is what the card can do.
        line.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        line.dedup_by(|next, kept| next.0 == kept.0);
    }
    Curves {
        id: "roofline",
        title: "Roofline of encoder layers",
        caption: "What layers reached (up) by their operations for each byte (across). The highest points are the roof.",
        x: "Operations a byte",
        y: "TFLOP/s",
        lines,
    }
}

fn copies(card: &Card) -> Curves {
    let points = card.tables.copy.iter().map(|row| {
        let memory = if row.pinned { "pinned" } else { "pageable" };
        (
            memory.to_owned(),
            (row.bytes as f64, row.bytes as f64 / row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "copies",
        title: "Copies to the card",
        caption: "The bandwidth of one copy (up) by its size (across).",
        x: "Bytes",
        y: "GB/s",
        lines: grouped(points),
    }
}

fn dense(card: &Card) -> Curves {
    let points = card.tables.decoder_dense.iter().map(|row| {
        let name = format!("{} {}, {} cards", row.model, row.dtype, row.tensor_parallel);
        (name, (f64::from(row.tokens), row.stats.median_us / 1e3))
    });
    Curves {
        id: "dense",
        title: "Decoder layer without attention",
        caption: "The median of one layer's projections and feed-forward (up) by the tokens of a step (across).",
        x: "Tokens",
        y: "ms",
        lines: grouped(points),
    }
}

fn decode(card: &Card) -> Curves {
    let rows = &card.tables.decoder_decode;
    let sequences = few(rows.iter().map(|row| row.sequences));
    let points = rows.iter().filter(|row| sequences.contains(&row.sequences)).map(|row| {
        let name = format!(
            "{}, {} cards, {} sequences",
            row.model, row.tensor_parallel, row.sequences
        );
        (name, (f64::from(row.context), row.stats.median_us / 1e3))
    });
    Curves {
        id: "decode",
        title: "Decoder layer's attention",
        caption: "The median of one layer's attention of new tokens (up) by what each attends to (across).",
        x: "Tokens of context",
        y: "ms",
        lines: grouped(points),
    }
}

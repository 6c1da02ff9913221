//! What the page of a profile draws: costs over batch and length, copies as bandwidth, and the roofline.

use tenantry_profiles::roofline::{Work, ops};
use tenantry_profiles::{Card, DType, Stats};
use tenantry_reports::page::Curves;

/// The charts of a card; those without lines are left out by the page.
pub fn curves(card: &Card) -> Vec<Curves> {
    vec![
        by_tokens(card),
        by_batch(card),
        encoders_roofline(card),
        decoders_roofline(card),
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

/// Where measured work lies under the roof: its operations for each byte, and how many a second it reached, in TFLOP/s.
fn under_the_roof(work: Work, stats: &Stats) -> (f64, f64) {
    (work.intensity(), work.flops / stats.median_us / 1e6)
}

/// What measured ops reached, over their operations a byte. Where a line is level the card computes, where it rises it
/// waits for memory or launches.
fn roofline(
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    points: impl Iterator<Item = (String, (f64, f64))>,
) -> Curves {
    let mut lines = grouped(points);
    for (_, line) in &mut lines {
        // Several shapes can have one intensity: the best is what the card can do.
        line.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        line.dedup_by(|next, kept| next.0 == kept.0);
    }
    Curves {
        id,
        title,
        caption,
        x: "Operations a byte",
        y: "TFLOP/s",
        lines,
    }
}

fn encoders_roofline(card: &Card) -> Curves {
    let points = card.tables.encoder_layer.iter().filter_map(|row| {
        let work = ops::encoder_layer(&card.model(&row.model)?, row.dtype, row.batch, row.tokens);
        Some((format!("{} {}", row.model, row.dtype), under_the_roof(work, &row.stats)))
    });
    let caption =
        "What layers reached (up) by their operations for each byte (across). The highest points are the roof.";
    roofline("roofline", "Roofline of encoder layers", caption, points)
}

fn decoders_roofline(card: &Card) -> Curves {
    let tables = &card.tables;
    let named = |part: &str, model: &str, dtype: DType, cards: u32| format!("{}, {part}", decoder(model, dtype, cards));
    let products = tables.decoder_dense.iter().filter_map(|row| {
        let work = ops::decoder_dense(&card.model(&row.model)?, row.dtype, row.tensor_parallel, row.tokens);
        let name = named("products", &row.model, row.dtype, row.tensor_parallel);
        Some((name, under_the_roof(work, &row.stats)))
    });
    let prompts = tables.decoder_prefill.iter().filter_map(|row| {
        let at = [row.tokens, row.context];
        let work = ops::decoder_prefill(&card.model(&row.model)?, row.dtype, row.tensor_parallel, at);
        let name = named("prompts' attention", &row.model, row.dtype, row.tensor_parallel);
        Some((name, under_the_roof(work, &row.stats)))
    });
    let new_tokens = tables.decoder_decode.iter().filter_map(|row| {
        let at = [row.sequences, row.context];
        let work = ops::decoder_decode(&card.model(&row.model)?, row.dtype, row.tensor_parallel, at);
        let name = named("new tokens' attention", &row.model, row.dtype, row.tensor_parallel);
        Some((name, under_the_roof(work, &row.stats)))
    });
    let caption = "What each card's part of a layer reached (up) by its operations for each byte (across).";
    let points = products.chain(prompts).chain(new_tokens);
    roofline("decoders-roofline", "Roofline of decoder layers", caption, points)
}

/// What charts call a decoder that so many cards share.
fn decoder(model: &str, dtype: DType, cards: u32) -> String {
    format!("{model} {dtype}, {cards} cards")
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
        let name = decoder(&row.model, row.dtype, row.tensor_parallel);
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
        let decoder = decoder(&row.model, row.dtype, row.tensor_parallel);
        let name = format!("{decoder}, {} sequences", row.sequences);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::find_card;

    fn line(card: &Card, id: &str, name: &str) -> Points {
        let chart = curves(card).into_iter().find(|curves| curves.id == id);
        let lines = chart.expect("every chart is drawn").lines;
        let found = lines.into_iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("{id} has no {name}")).1
    }

    #[test]
    fn ops_lie_under_the_roof_where_arithmetic_puts_them() {
        let card = find_card("rtx4090").unwrap();
        let products = line(&card, "decoders-roofline", "llama3.1-8b bf16, 1 cards, products");
        // Queries and outputs are 4096 × 4096, keys and values 4096 × 1024, the three of the feed-forward 4096 × 14336.
        let weights = 2.0 * 4096.0 * 4096.0 + 2.0 * 4096.0 * 1024.0 + 3.0 * 4096.0 * 14336.0;
        let moved = 8.0 * 4096.0 + 2.0 * 14336.0;
        let mut rows = card.tables.decoder_dense.iter();
        let one = rows
            .find(|row| (row.model.as_str(), row.tokens, row.tensor_parallel) == ("llama3.1-8b", 1, 1))
            .unwrap();
        let (intensity, tflops) = products[0];
        assert!((intensity - weights / (weights + moved)).abs() < 1e-9, "{intensity}");
        assert!(
            (tflops - 2.0 * weights / one.stats.median_us / 1e6).abs() < 1e-9,
            "{tflops}"
        );

        // Every new token's attention reads what it computes with: one intensity, of which the best is shown.
        let attention = line(
            &card,
            "decoders-roofline",
            "llama3.1-8b bf16, 1 cards, new tokens' attention",
        );
        let reached = card
            .tables
            .decoder_decode
            .iter()
            .filter(|row| row.model == "llama3.1-8b" && row.tensor_parallel == 1)
            .map(|row| 4.0 * f64::from(row.sequences) * f64::from(row.context) * 4096.0 / row.stats.median_us / 1e6);
        assert_eq!(attention.len(), 1);
        // Four queries share a key: 4 × 4096 operations for 2 × 1024 numbers of two bytes.
        assert!((attention[0].0 - 4.0).abs() < 1e-9);
        assert!((attention[0].1 - reached.fold(0.0, f64::max)).abs() < 1e-9);
    }

    #[test]
    fn copies_are_drawn_as_bandwidth_and_layers_as_time() {
        let card = find_card("cpu-epyc").unwrap();
        let copies = line(&card, "copies", "pageable");
        assert_eq!(copies.len(), card.tables.copy.len());
        for (row, (bytes, gbytes_per_s)) in card.tables.copy.iter().zip(copies) {
            assert_eq!(bytes, row.bytes as f64);
            assert!((gbytes_per_s * row.stats.median_us * 1e3 / bytes - 1.0).abs() < 1e-9);
        }
        let layers = line(&card, "tokens", "bert-mini f32, batch 1");
        let mut rows = card.tables.encoder_layer.iter();
        let (tokens, ms) = layers[0];
        let row = rows.find(|row| (row.model.as_str(), row.batch, f64::from(row.tokens)) == ("bert-mini", 1, tokens));
        assert!((ms - row.unwrap().stats.median_us / 1e3).abs() < 1e-12);
    }
}

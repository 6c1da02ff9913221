//! What a decoder's steps cost, one by one and many at once.
//!
//! While nobody joins or leaves, a step differs from the one before only in its context, which is one token longer for
//! everyone. The attention of `n` sequences at each context is therefore summed up once, so that any number of steps is
//! one subtraction, exactly the sum of the steps taken singly.
//!
//! A step is priced by its parts: layers, attention, LoRA, ends. Where the card has whole steps too, as a lane makes
//! them, its parts are scaled by what they come to there: a measured step costs what was measured, and others in
//! proportion.

use std::num::NonZeroU64;

use tenantry_core::op::{GoingOn, Member};
use tenantry_core::spec::{GenerationSpec, LookupsInSteps, PoolSpec, TenantState};
use tenantry_profiles::{
    AdapterSurface, Added, Beyond, Card, CollectiveOperation, Decoder, Drawn, Family, MissingTable, Surface, TokensOf,
    WholeSteps,
};

use crate::lookups::{LookupPrices, StageCosts};
use crate::ppm::{ONE, scaled};
use crate::prices::{Extrapolated, messages};

/// The costs of one pool's steps, bound once.
#[derive(Debug)]
pub(crate) struct StepPrices {
    /// That are computed.
    layers: u32,
    decoder: Decoder,
    lora: Option<Surface>,
    adapter: Option<AdapterSurface>,
    retrieval: Option<Retrieval>,
    /// What the cards that share a layer exchange, twice in each.
    all_reduce: Option<AllReduce>,
    /// Steps as lanes make them.
    whole: Option<WholeSteps>,
    /// Of one instance while others on the same processor make steps too, by instances and sequences.
    concurrent: Option<Surface>,
    /// By sequences.
    sums: Vec<Sums>,
    /// By sequences and tenants: what a step in which each makes a token costs without attention, where it was asked
    /// for. The nanoseconds alone, so that all of a batch's sizes lie in a processor's first cache.
    decode_steps: Vec<Vec<Option<NonZeroU64>>>,
    /// Its dense part, likewise by sequences.
    dense: Vec<Option<Drawn>>,
    /// Reused: tokens and context of a step's chunks.
    chunks: Vec<(u32, u32)>,
}

/// What stands for the lower layers of the tokens that steps look up themselves: found in host memory, and copied to
/// the card.
#[derive(Debug)]
struct Retrieval {
    lookups: LookupsInSteps,
    prompts: LookupPrices,
    new_tokens: LookupPrices,
    stage: StageCosts,
}

/// Tokens that a step looks up: of prompts, and the newest of each sequence that generates.
#[derive(Clone, Copy, Debug, Default)]
struct LookedUp {
    of_prompts: u32,
    new: u32,
}

impl LookedUp {
    fn tokens(self) -> u32 {
        self.of_prompts + self.new
    }
}

impl Retrieval {
    /// What the first step looks up of its members, and of so many sequences that go on.
    fn looked_up(&self, members: &[Member], going_on: u32) -> LookedUp {
        let mut all = LookedUp {
            of_prompts: 0,
            new: going_on,
        };
        for Member { sequence, .. } in members {
            let of = match sequence.chunk_tokens {
                0 => &mut all.new,
                _ => &mut all.of_prompts,
            };
            *of += sequence.looked_up(self.lookups);
        }
        all
    }

    fn note_beyond(&self, looked_up: LookedUp, extrapolated: &mut Extrapolated) {
        for (prices, tokens) in [(&self.prompts, looked_up.of_prompts), (&self.new_tokens, looked_up.new)] {
            if tokens > 0 {
                extrapolated.note(prices.beyond(tokens), Family::PlotLookup);
            }
        }
        if looked_up.tokens() > 0 {
            extrapolated.note(self.stage.beyond(looked_up.tokens()), Family::Copy);
        }
    }

    /// To find them all, and to copy what was found.
    fn median_ns(&self, looked_up: LookedUp) -> u64 {
        let parts = [(&self.prompts, looked_up.of_prompts), (&self.new_tokens, looked_up.new)];
        let found = parts
            .into_iter()
            .filter(|(_, tokens)| *tokens > 0)
            .map(|(prices, tokens)| prices.median_ns(tokens))
            .sum::<u64>();
        match looked_up.tokens() {
            0 => 0,
            tokens => found + self.stage.median_ns(tokens),
        }
    }
}

/// Of steps of so many sequences at contexts from 0, summed up from the shortest: at each index, over contexts below
/// it. As far as they were asked for.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// The attention of all layers, scaled.
    attention_ns: Vec<u64>,
    /// By how much the rest is scaled, in parts of a million; empty where nothing is.
    scale_ppm: Vec<u64>,
}

#[derive(Debug)]
struct AllReduce {
    surface: Surface,
    cards: u32,
    bytes_per_token: u32,
}

impl AllReduce {
    fn bytes_of(&self, tokens: u32) -> u64 {
        u64::from(self.bytes_per_token) * u64::from(tokens)
    }
}

/// The steps of one run. All but the first make a token for each of `sequences`, at a context that grows by one a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepCosts {
    pub first_ns: u64,
    /// Of each later step, without attention.
    base_ns: u64,
    /// Of what is summed up over contexts: what lies before the second step.
    before_ns: u64,
    sequences: u32,
    /// Of the second step: tokens that each sequence attends to on average, rounded down.
    context: u32,
    /// Tokens that the first step looks up.
    pub looked_up_first: u32,
    /// That each later one does.
    pub looked_up_later: u32,
}

impl StepCosts {
    /// Tokens that each sequence attends to in a step after the first, counted from 0.
    fn context_at(&self, step: u32) -> usize {
        (self.context + step - 1) as usize
    }

    /// Tokens that so many steps look up.
    pub fn looked_up(&self, steps: u32) -> u64 {
        match steps {
            0 => 0,
            steps => u64::from(self.looked_up_first) + u64::from(steps - 1) * u64::from(self.looked_up_later),
        }
    }
}

impl StepPrices {
    pub fn new(card: &Card, pool: &PoolSpec, generation: &GenerationSpec) -> Result<StepPrices, MissingTable> {
        let (model, dtype) = (&pool.model, pool.dtype);
        let cards = generation.tensor_parallel;
        let added = match (pool.tenant_state, generation.lora) {
            (
                TenantState::Adapters {
                    bottleneck,
                    implementation,
                },
                _,
            ) => Added::Adapters {
                implementation,
                bottleneck,
            },
            (TenantState::Model | TenantState::Head, Some(lora)) => Added::Lora {
                implementation: lora.implementation,
                rank: lora.rank,
            },
            (TenantState::Model | TenantState::Head, None) => Added::Nothing,
        };
        let lora = |lora: tenantry_core::spec::LoraSpec| card.lora(model, dtype, lora.implementation, lora.rank, cards);
        Ok(StepPrices {
            layers: pool.computed_layers(),
            decoder: card.decoder(model, dtype, cards)?,
            lora: generation.lora.map(lora).transpose()?,
            adapter: match pool.tenant_state {
                TenantState::Adapters {
                    bottleneck,
                    implementation,
                } => Some(card.adapter(model, dtype, implementation, bottleneck)?),
                TenantState::Model | TenantState::Head => None,
            },
            retrieval: match pool.plot {
                None => None,
                Some(plot) => Some(Retrieval {
                    lookups: pool.lookups_in_steps(),
                    prompts: LookupPrices::new(card, model, plot, TokensOf::Texts)?,
                    new_tokens: LookupPrices::new(card, model, plot, TokensOf::Sequences)?,
                    stage: StageCosts::new(card, model)?,
                }),
            },
            all_reduce: match cards {
                1 => None,
                // Where a card's layers were measured with their exchange, it has no table of its own.
                _ => card.collective(CollectiveOperation::AllReduce).ok().map(|surface| AllReduce {
                    surface,
                    cards,
                    bytes_per_token: model.hidden * dtype.bytes() as u32,
                }),
            },
            // Cards that share a layer were not measured as lanes use them.
            whole: match cards {
                1 => card.decoder_step(model, dtype, added)?,
                _ => None,
            },
            concurrent: card.concurrent_step(model, dtype, added)?,
            sums: Vec::new(),
            decode_steps: Vec::new(),
            dense: Vec::new(),
            chunks: Vec::new(),
        })
    }

    /// The steps of a run that takes the members' prompts in, beside those who go on. [`worked_ns`](Self::worked_ns)
    /// knows of no more than so many.
    pub fn run(
        &mut self,
        members: &[Member],
        going_on: GoingOn,
        tenants: u32,
        steps: u32,
        extrapolated: &mut Extrapolated,
    ) -> StepCosts {
        let mut chunks = std::mem::take(&mut self.chunks);
        chunks.clear();
        let mut decodes = going_on.requests;
        let mut attended = going_on.cached_tokens + u64::from(decodes);
        let mut attended_next = attended + u64::from(decodes);
        for Member { sequence, .. } in members {
            let context = sequence.cached_tokens + sequence.chunk_tokens;
            attended_next += u64::from(context) + 1;
            // Who comes from another card with its prompt, and all but the last token of what it made, begins as the
            // others go on.
            if sequence.chunk_tokens == 1 && sequence.generated_tokens > 0 && self.retrieval.is_none() {
                decodes += 1;
                attended += u64::from(context);
            } else {
                chunks.push((sequence.chunk_tokens, context));
            }
        }
        let sequences = members.len() as u32 + going_on.requests;
        let mean = |sum: u64, of: u32| (sum / u64::from(of.max(1))) as u32;
        let tokens = chunks.iter().map(|(tokens, _)| tokens).sum::<u32>() + decodes;
        let now = mean(attended, decodes);
        let context = mean(attended_next, sequences);
        if chunks.is_empty() && decodes > 0 {
            // All else of such a step is noted where it is first asked for.
            extrapolated.note(self.decoder.decode.beyond(decodes, now), Family::DecoderDecode);
        } else if !self.decoder.covers(&chunks, decodes, now) {
            // Mostly all is covered, and what is not costs more to be told than to be asked for.
            self.decoder.beyond(&chunks, decodes, now, |family, beyond| {
                extrapolated.note(Some(beyond), family);
            });
        }
        let lora = self.lora.as_ref().and_then(|lora| lora.beyond(tenants, tokens));
        extrapolated.note(lora, Family::Lora);
        let adapter = self.adapter.as_ref();
        let adapter = adapter.and_then(|adapter| adapter.beyond(tenants, tokens, 1));
        extrapolated.note(adapter, Family::Adapter);
        let (mut looked_up_first, mut looked_up_later) = (LookedUp::default(), LookedUp::default());
        if let Some(retrieval) = &self.retrieval {
            looked_up_first = retrieval.looked_up(members, going_on.requests);
            looked_up_later.new = sequences;
            retrieval.note_beyond(looked_up_first, extrapolated);
            retrieval.note_beyond(looked_up_later, extrapolated);
        }
        if let Some(all_reduce) = &self.all_reduce {
            let (whole, rest) = messages(all_reduce.bytes_of(tokens));
            let largest = if whole > 0 { u32::MAX } else { rest };
            extrapolated.note(all_reduce.surface.beyond(all_reduce.cards, largest), Family::Collective);
        }
        let first = self.attention_ns(&chunks, decodes, now);
        let attention = self.decoder.decode.beyond(sequences, context);
        extrapolated.note(attention, Family::DecoderDecode);
        let base_ns = self.decode_step_ns(sequences, tenants, extrapolated);
        let first_base_ns = match chunks.is_empty() {
            true => base_ns,
            false => self.base_ns(self.layers, sequences, tokens, tenants, looked_up_first),
        };
        self.chunks = chunks;
        let chunk_tokens = (tokens - decodes).max(1);
        let attended = if decodes > 0 { now } else { context };
        let whole = self.whole.as_ref();
        let whole = whole.and_then(|whole| whole.beyond([chunk_tokens, sequences, attended]));
        extrapolated.note(whole, Family::DecoderStep);
        let mut costs = StepCosts {
            first_ns: scaled(first_base_ns + first, self.scale_ppm(chunk_tokens, sequences, attended)),
            base_ns,
            before_ns: 0,
            sequences,
            context,
            looked_up_first: looked_up_first.tokens(),
            looked_up_later: looked_up_later.tokens(),
        };
        if steps > 1 {
            // Sums up as far as they reach.
            let sums = self.sums_beyond(sequences, costs.context_at(steps));
            costs.before_ns = sums.up_to(&costs, 1);
            self.note_last(&costs, steps, extrapolated);
        }
        costs
    }

    /// Notes where the last of so many steps is beyond what was measured: its attention, or all of it.
    fn note_last(&self, costs: &StepCosts, steps: u32, extrapolated: &mut Extrapolated) {
        let (sequences, context) = (costs.sequences, costs.context_at(steps - 1) as u32);
        extrapolated.note(self.decoder.decode.beyond(sequences, context), Family::DecoderDecode);
        let whole = self.whole.as_ref();
        let whole = whole.and_then(|whole| whole.beyond([1, sequences, context]));
        extrapolated.note(whole, Family::DecoderStep);
    }

    /// The attention of all layers in a step with these chunks of prompts, and new tokens that attend to `context`
    /// each.
    fn attention_ns(&mut self, chunks: &[(u32, u32)], decodes: u32, context: u32) -> u64 {
        let layers = u64::from(self.layers);
        let is_one_kernel = self.decoder.mixed.is_some() && !chunks.is_empty();
        if decodes == 0 || is_one_kernel || self.whole.is_some() {
            return self.decoder.attention_ns(chunks, decodes, context) * layers;
        }
        // That of new tokens lies between two sums, which the run before has mostly asked for.
        let at = context as usize;
        let sums = &self.sums_beyond(decodes, at + 1).attention_ns;
        let of_decodes = sums[at + 1] - sums[at];
        match chunks {
            [] => of_decodes,
            _ => of_decodes + self.decoder.attention_ns(chunks, 0, 0) * layers,
        }
    }

    /// A measure of how much the duration of a run's steps varies: that of its dense part does, or of all where whole
    /// steps were measured.
    pub fn typical(&mut self, costs: &StepCosts) -> Drawn {
        let (sequences, context) = (costs.sequences, costs.context);
        match &self.whole {
            Some(whole) => whole.cost(whole.nearest(1, sequences, context)).into(),
            None => self.dense(sequences),
        }
    }

    /// The dense part of a step in which each sequence makes a token.
    #[inline]
    fn dense(&mut self, sequences: u32) -> Drawn {
        match self.dense.get(sequences as usize) {
            Some(&Some(known)) => known,
            _ => *entry(&mut self.dense, sequences).insert(self.decoder.dense.cost(sequences.into()).into()),
        }
    }

    /// A step in which each sequence makes a token: what its parts cost without attention.
    #[inline]
    fn decode_step_ns(&mut self, sequences: u32, tenants: u32, extrapolated: &mut Extrapolated) -> u64 {
        let known = self.decode_steps.get(sequences as usize);
        match known.and_then(|by_tenants| by_tenants.get(tenants as usize)) {
            Some(&Some(known_ns)) => known_ns.get(),
            _ => self.ask_decode_step_ns(sequences, tenants, extrapolated),
        }
    }

    #[inline(never)]
    fn ask_decode_step_ns(&mut self, sequences: u32, tenants: u32, extrapolated: &mut Extrapolated) -> u64 {
        let dense = self.decoder.dense.beyond(sequences.into());
        extrapolated.note(dense, Family::DecoderDense);
        let ends = self.decoder.ends.beyond(sequences, sequences);
        extrapolated.note(ends, Family::DecoderEnds);
        let looked_up = LookedUp {
            of_prompts: 0,
            new: if self.retrieval.is_some() { sequences } else { 0 },
        };
        let ns = self.base_ns(self.layers, sequences, sequences, tenants, looked_up);
        // One that costs nothing is asked for each time.
        *entry(entry(&mut self.decode_steps, sequences), tenants) = NonZeroU64::new(ns);
        ns
    }

    /// What a step as a lane makes it comes to, beside its parts: in parts of a million. `chunk_tokens` are those of
    /// prompts, 1 where there are none.
    #[inline]
    fn scale_ppm(&self, chunk_tokens: u32, sequences: u32, context: u32) -> u64 {
        match &self.whole {
            None => ONE,
            Some(whole) => self.scale_to_ppm(whole, chunk_tokens, sequences, context),
        }
    }

    fn scale_to_ppm(&self, whole: &WholeSteps, chunk_tokens: u32, sequences: u32, context: u32) -> u64 {
        let nearest = whole.nearest(chunk_tokens, sequences, context);
        let [chunk_tokens, sequences, context] = nearest;
        // Measured with another tenant in each sequence.
        let (chunk, decodes) = match chunk_tokens {
            1 => (None, sequences),
            tokens => (Some((tokens, tokens)), sequences - 1),
        };
        let attention = self.decoder.attention_ns(chunk.as_slice(), decodes, context);
        let tokens = chunk_tokens + sequences - 1;
        let parts = u64::from(whole.layers) * attention
            + self.base_ns(whole.layers, sequences, tokens, sequences, LookedUp::default());
        (whole.cost(nearest).median_ns * ONE / parts.max(1)).max(1)
    }

    /// How much longer a step takes while `streams` instances make steps on one processor, in parts of a million;
    /// nothing where that was not measured.
    pub fn streams_ppm(&self, streams: u32, sequences: u32) -> Option<u64> {
        let concurrent = self.concurrent.as_ref()?;
        let ns = |streams| concurrent.median_ns(streams, sequences);
        Some((ns(streams) * ONE / ns(1).max(1)).max(ONE))
    }

    /// How far that is beyond what was measured.
    pub fn streams_beyond(&self, streams: u32, sequences: u32) -> Option<Beyond> {
        self.concurrent.as_ref()?.beyond(streams, sequences)
    }

    /// A step of a model of so many layers, without its attention. Above a table it has no embedding, which the table
    /// of what comes before and after the layers has: a few microseconds too many.
    fn base_ns(&self, layers: u32, sequences: u32, tokens: u32, tenants: u32, looked_up: LookedUp) -> u64 {
        let layers = u64::from(layers);
        let lora = self.lora.as_ref().map_or(0, |lora| lora.median_ns(tenants, tokens));
        let exchange = self.all_reduce.as_ref().map_or(0, |all_reduce| {
            let (whole, rest) = messages(all_reduce.bytes_of(tokens));
            let ns = |bytes: u32| all_reduce.surface.median_ns(all_reduce.cards, bytes);
            let whole_ns = if whole > 0 { whole * ns(u32::MAX) } else { 0 };
            2 * (whole_ns + ns(rest))
        });
        // To adapters, each token is a sequence of its own.
        let adapter = self.adapter.as_ref().map_or(0, |adapter| adapter.cost(tenants, tokens, 1).median_ns);
        let retrieval = self.retrieval.as_ref();
        let retrieval = retrieval.map_or(0, |retrieval| retrieval.median_ns(looked_up));
        let layer = self.decoder.dense.median_ns(tokens.into()) + lora + adapter + exchange;
        layers * layer + self.decoder.ends.median_ns(sequences, tokens) + retrieval
    }

    /// So many steps of a run, from its first on, in nanoseconds.
    #[inline(always)]
    pub fn worked_ns(&self, costs: &StepCosts, steps: u32) -> u64 {
        match steps {
            0 | 1 => u64::from(steps) * costs.first_ns,
            _ => costs.first_ns + self.sums[costs.sequences as usize].up_to(costs, steps) - costs.before_ns,
        }
    }

    /// The least number of a run's steps, more than are over and `most` at most, that together take `work_ns` or more.
    pub fn steps_of(&self, costs: &StepCosts, over: u32, most: u32, work_ns: u64) -> u32 {
        let next = over + 1;
        // A copy has mostly just begun or ended: the next step is the most frequent answer.
        let next_ns = self.worked_ns(costs, next);
        if next == most || next_ns >= work_ns {
            return next;
        }
        // Steps of a run take nearly as long as each other: where they would be if they did, and then to either side,
        // twice as far each time.
        let later_ns = (self.worked_ns(costs, most) - next_ns).max(1);
        let share = (work_ns - next_ns) as f64 / later_ns as f64;
        let guess = next.saturating_add((share * f64::from(most - next)) as u32);
        let (mut before, mut after) = (next, most);
        let mut middle = guess.min(most - 1).max(next + 1);
        let mut reach = 1;
        while before + 1 < after {
            match self.worked_ns(costs, middle) >= work_ns {
                true => after = middle,
                false => before = middle,
            }
            middle = match (before, after) {
                (before, _) if before == next => after.saturating_sub(reach).max(next + 1),
                (_, after) if after == most => (before + reach).min(most - 1),
                _ => before + (after - before) / 2,
            };
            reach *= 2;
        }
        after
    }

    /// Sums over contexts below this one and beyond.
    #[inline(always)]
    fn sums_beyond(&mut self, sequences: u32, context: usize) -> &Sums {
        let known = self.sums.get(sequences as usize);
        if known.is_none_or(|sums| sums.attention_ns.len() <= context) {
            self.extend_sums(sequences, context);
        }
        &self.sums[sequences as usize]
    }

    #[cold]
    fn extend_sums(&mut self, sequences: u32, context: usize) {
        let mut sums = std::mem::take(entry(&mut self.sums, sequences));
        if sums.attention_ns.is_empty() {
            sums.attention_ns.push(0);
            sums.scale_ppm.extend(self.whole.is_some().then_some(0));
        }
        // By an eighth as much again, so that a growing context does not extend it at each step.
        for at in sums.attention_ns.len()..=context + context / 8 {
            let attended = at as u32 - 1;
            let ns = self.decoder.decode.median_ns(sequences, attended) * u64::from(self.layers);
            let ppm = self.scale_ppm(1, sequences, attended);
            sums.attention_ns.push(sums.attention_ns[at - 1] + scaled(ns, ppm));
            if let Some(&before) = sums.scale_ppm.last() {
                sums.scale_ppm.push(before + ppm);
            }
        }
        self.sums[sequences as usize] = sums;
    }
}

impl Sums {
    /// Of contexts before that of the step after so many of a run, all after its first.
    #[inline(always)]
    fn up_to(&self, costs: &StepCosts, steps: u32) -> u64 {
        let context = costs.context_at(steps);
        let others_ns = match self.scale_ppm.get(context) {
            None => u64::from(steps - 1) * costs.base_ns,
            // Steps are differences of whole numbers: cut anywhere, a run's pieces add up to it.
            Some(&scale_ppm) => scaled(costs.base_ns, scale_ppm),
        };
        self.attention_ns[context] + others_ns
    }
}

/// A place of a table that grows as far as it is asked for.
fn entry<T: Clone + Default>(table: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if index >= table.len() {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}

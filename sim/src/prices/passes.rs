//! Forward passes of encoders, by their parts or whole.

use tenantry_core::ids::PoolId;
use tenantry_core::op::{BatchShape, Encode, Layers};
use tenantry_core::spec::{HeadTask, PoolSpec, StageSpec, TenantState};
use tenantry_profiles::{
    AdapterSurface, Beyond, Card, Cost, Curve, Drawn, Family, MissingTable, Surface, TaggingSurface,
};

use super::draws::{OpSpread, Quantile};
use super::extrapolated::Extrapolated;
use super::{ModelPrices, Prices};

/// Forward passes of an encoder.
#[derive(Debug)]
pub struct EncoderPrices {
    embedding: Surface,
    layer: Surface,
    /// Of which family that is.
    layer_family: Family,
    head: HeadPrices,
    adapter: Option<AdapterSurface>,
    /// One layer on several instances of a card at once; absent where that was not measured.
    pub concurrent: Option<AdapterSurface>,
    /// Of trained classifiers over texts, whole; absent where that was not measured, and a pass costs what its parts
    /// do.
    pub texts: Option<TextPrices>,
    /// Instances on a card.
    streams: u32,
    /// By requests: tokens and tenants of the last such batch, and what a layer of it and its adapters cost. The ops of
    /// a batch ask for the same.
    layers: Vec<Option<LayerCosts>>,
    embeddings: LastOfSize,
    heads: LastOfSize,
}

/// What a trained classifier's stage takes on a card that measured it with the very lane that serves.
#[derive(Debug)]
pub struct TextPrices {
    pass: Surface,
    /// What the lane makes of a pass; where nobody dispatches, at its end.
    look: Curve,
    /// The same where each of the texts goes on pruned; absent where that was not measured.
    pruned_look: Option<Curve>,
    dispatches: bool,
    passes: LastOfSize,
}

impl TextPrices {
    pub fn new(card: &Card, stage: &StageSpec, attended: bool) -> Result<Option<TextPrices>, MissingTable> {
        let PoolSpec { model, dtype, .. } = &stage.pool;
        // Trained models have no exits: what computes a part of the layers is another model of this name.
        if stage.layers != Layers::all(model.layers) {
            return Ok(None);
        }
        // Where it was not measured what attention adds, a whole pass without is still nearer than its parts, which may
        // be of other lengths.
        let pass = match card.text_pass(model, *dtype, attended)? {
            None if attended => card.text_pass(model, *dtype, false)?,
            pass => pass,
        };
        let (Some(pass), Some(look)) = (pass, card.text_look(model, false)?) else {
            return Ok(None);
        };
        Ok(Some(TextPrices {
            pass,
            look,
            pruned_look: card.text_look(model, true)?,
            dispatches: stage.dispatch.is_some(),
            passes: LastOfSize::default(),
        }))
    }

    /// A pass, and what is made of it where no look follows.
    pub fn pass_ns(&mut self, shape: BatchShape, draw: Quantile, extrapolated: &mut Extrapolated) -> u64 {
        let BatchShape { requests, tokens, .. } = shape;
        let pass = &self.pass;
        let cost = self.passes.cost(requests, tokens, || {
            extrapolated.note(pass.beyond(requests, tokens), Family::TextPass);
            pass.cost(requests, tokens)
        });
        let ns = draw.of_drawn(cost);
        match self.dispatches {
            true => ns,
            false => ns + draw.of(self.looked(requests, extrapolated)),
        }
    }

    pub fn looked(&self, requests: u32, extrapolated: &mut Extrapolated) -> Cost {
        extrapolated.note(self.look.beyond(requests.into()), Family::TextLook);
        self.look.cost(requests.into())
    }

    /// A look at so many answers, after which so many texts go on pruned.
    pub fn look_ns(&self, requests: u32, pruned: u32, draw: Quantile, extrapolated: &mut Extrapolated) -> u64 {
        let all = draw.of(self.looked(requests, extrapolated));
        let Some(pruned_look) = self.pruned_look.as_ref().filter(|_| pruned > 0) else {
            return all;
        };
        extrapolated.note(pruned_look.beyond(pruned.into()), Family::TextLook);
        let more = draw.of(pruned_look.cost(pruned.into()));
        all + more.saturating_sub(draw.of(self.look.cost(pruned.into())))
    }
}

/// What a part of a pass costs, by requests: tokens of the last such batch, and its cost.
#[derive(Debug, Default)]
struct LastOfSize(Vec<Option<(u32, Drawn)>>);

impl LastOfSize {
    /// That of a batch of so many tokens, which is asked for where the last of its size had others.
    fn cost(&mut self, requests: u32, tokens: u32, ask: impl FnOnce() -> Cost) -> &Drawn {
        let index = requests as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        let last = &mut self.0[index];
        if last.is_none_or(|(known, _)| known != tokens) {
            *last = Some((tokens, ask().into()));
        }
        &last.as_ref().expect("it has just been asked for").1
    }
}

/// From the last hidden states to what tenants' heads say.
#[derive(Debug)]
pub enum HeadPrices {
    Classification(Curve),
    Tagging { surface: TaggingSurface, classes: u32 },
}

impl HeadPrices {
    /// Of a batch: its cost, and how far beyond what was measured that is.
    fn of(&self, requests: u32, tokens: u32) -> (Cost, Option<Beyond>, Family) {
        match self {
            HeadPrices::Classification(curve) => {
                let requests = u64::from(requests);
                (curve.cost(requests), curve.beyond(requests), Family::Head)
            }
            HeadPrices::Tagging { surface, classes } => (
                surface.cost(requests, tokens, *classes),
                surface.beyond(requests, tokens, *classes),
                Family::TaggingHead,
            ),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct LayerCosts {
    tokens: u32,
    tenants: u32,
    layer: Drawn,
    adapter: Option<Drawn>,
}

impl EncoderPrices {
    /// `streams` instances compute on a card. Where `attended`, a pass also says which words were attended to; on a
    /// card where that was not measured it costs what it does without.
    pub fn new(card: &Card, pool: &PoolSpec, streams: u32, attended: bool) -> Result<EncoderPrices, MissingTable> {
        let PoolSpec {
            model, dtype, classes, ..
        } = pool;
        let measured = match attended {
            true => card.attended_layer(model, *dtype)?,
            false => None,
        };
        Ok(EncoderPrices {
            embedding: card.embedding(model, *dtype)?,
            layer_family: match measured {
                Some(_) => Family::AttendedLayer,
                None => Family::EncoderLayer,
            },
            layer: match measured {
                Some(layer) => layer,
                None => card.encoder_layer(model, *dtype)?,
            },
            head: match pool.heads {
                HeadTask::Classification => HeadPrices::Classification(card.head(model, *dtype, *classes)?),
                HeadTask::Tagging => HeadPrices::Tagging {
                    surface: card.tagging_head(model, *dtype)?,
                    classes: *classes,
                },
            },
            adapter: match pool.tenant_state {
                TenantState::Adapters {
                    bottleneck,
                    implementation,
                } => Some(card.adapter(model, *dtype, implementation, bottleneck)?),
                TenantState::Model | TenantState::Head => None,
            },
            concurrent: match streams {
                1 => None,
                _ => card.concurrent_layer(model, *dtype).ok(),
            },
            texts: None,
            streams,
            layers: Vec::new(),
            embeddings: LastOfSize::default(),
            heads: LastOfSize::default(),
        })
    }

    pub fn layer(&mut self, shape: BatchShape, extrapolated: &mut Extrapolated) -> LayerCosts {
        let BatchShape {
            requests,
            tokens,
            tenants,
            input_tokens: _,
        } = shape;
        let index = requests as usize;
        if index >= self.layers.len() {
            self.layers.resize(index + 1, None);
        }
        if let Some(known) = self.layers[index].filter(|known| (known.tokens, known.tenants) == (tokens, tenants)) {
            return known;
        }
        let mut note = |beyond, family| extrapolated.note(beyond, family);
        note(self.layer.beyond(requests, tokens), self.layer_family);
        if let Some(concurrent) = &self.concurrent {
            note(
                concurrent.beyond(self.streams, requests, tokens),
                Family::ConcurrentLayer,
            );
        }
        if let Some(adapter) = &self.adapter {
            note(adapter.beyond(tenants, requests, tokens), Family::Adapter);
        }
        let adapter = self.adapter.as_ref();
        let costs = LayerCosts {
            tokens,
            tenants,
            layer: self.layer.cost(requests, tokens).into(),
            adapter: adapter.map(|adapter| adapter.cost(tenants, requests, tokens).into()),
        };
        self.layers[index] = Some(costs);
        costs
    }
}

impl Prices {
    /// A dispatcher's look at what a pass came to, after which so many of its texts go on pruned.
    pub fn look_ns(&mut self, pool: PoolId, shape: BatchShape, pruned: u32, spread: &mut OpSpread) -> u64 {
        if let ModelPrices::Encoder(prices) = &self.models[pool.index()]
            && let Some(texts) = &prices.texts
        {
            return texts.look_ns(shape.requests, pruned, spread.draw(), &mut self.extrapolated);
        }
        self.inspect.as_ref().map_or(0, |inspect| spread.of_drawn(inspect))
    }

    pub(super) fn encode_ns(&mut self, pool: PoolId, encode: &Encode, shape: BatchShape, spread: &mut OpSpread) -> u64 {
        let BatchShape { requests, tokens, .. } = shape;
        let ModelPrices::Encoder(prices) = &mut self.models[pool.index()] else {
            unreachable!("a decoder's pool encodes nothing")
        };
        let layers = u64::from(encode.layers.count);
        // The parts of one op run within milliseconds of each other: what slows one slows all.
        let draw = spread.draw();
        if let Some(texts) = &mut prices.texts {
            return texts.pass_ns(shape, draw, &mut self.extrapolated);
        }
        let costs = prices.layer(shape, &mut self.extrapolated);
        let adapter_ns = costs.adapter.map_or(0, |adapter| draw.of_drawn(&adapter));
        let mut ns = layers * (draw.of_drawn(&costs.layer) + adapter_ns);
        let mut note = |beyond, family| self.extrapolated.note(beyond, family);
        let EncoderPrices {
            embedding,
            embeddings,
            head,
            heads,
            ..
        } = &mut **prices;
        if encode.embed {
            ns += draw.of_drawn(embeddings.cost(requests, tokens, || {
                note(embedding.beyond(requests, tokens), Family::Embedding);
                embedding.cost(requests, tokens)
            }));
        }
        if encode.heads {
            ns += draw.of_drawn(heads.cost(requests, tokens, || {
                let (cost, beyond, family) = head.of(requests, tokens);
                note(beyond, family);
                cost
            }));
        }
        ns
    }
}

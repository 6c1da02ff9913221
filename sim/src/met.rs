//! What look-ups meet in a pool's tables, where that is to be [counted](Met::Counted): over the token ids of the texts
//! that the real machine serves, in tables of the corpus that it builds them from.

use tenantry_core::spec::{Met, PlotSpec};
use tenantry_plot::storage::table_bytes;
use tenantry_plot::{Context, Counters, Forecast, KeySets, PlotError, Select, Shape, Texts};
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::{Entry, Time, TraceError, Workload};

/// Requests that are looked at: shares of some 100,000 look-ups are known to a few tenths of a percent.
const REQUESTS: usize = 4096;

/// Shares that cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum MetError {
    /// The corpus's fragments cannot be counted.
    #[error(transparent)]
    Tables(#[from] PlotError),
    /// The requests cannot be had.
    #[error(transparent)]
    Workload(#[from] TraceError),
}

/// What a model's tables would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedTables {
    /// Shares of the look-ups.
    pub met: Met,
    /// Of a domain's own table, in the mean.
    pub domain_bytes: u64,
}

/// The shares of the workload's first look-ups that domains' own tables would answer, and that only shorter fragments
/// would, in the tables of a model that the real machine builds from these texts, and how large those of domains are.
/// Of prompts alone, where the model is a decoder: nobody knows what it will make. What was counted of the same tables
/// is in `kept`.
///
/// # Errors
/// A trace that cannot be read, or no space to sort a corpus.
pub fn count_met(
    plot: &PlotSpec,
    model: &ModelShape,
    texts: &Texts,
    workload: &mut dyn Workload,
    kept: &KeySets,
) -> Result<CountedTables, MetError> {
    let context = match model.kind {
        ModelKind::Encoder => Context::Both,
        ModelKind::Decoder => Context::Preceding,
    };
    let root = Select::of_root(plot.fallbacks_ppm);
    let domains = Select::of_domain(plot.domain_hits_ppm);
    let forecast = Forecast::new(texts, plot.fragment_tokens, context, root, domains, kept)?;
    let mut met = Counters::default();
    first_requests(workload, |ticket, tenant, tokens| {
        let mut text = vec![0; tokens as usize];
        texts.write(ticket, tenant, &mut text);
        met = met + forecast.meet(&text, texts.domain_of(tenant));
    })?;
    let all = met.domain_hits + met.root_hits + met.fallbacks;
    let ppm = |part: u64| (part as f64 / all.max(1) as f64 * 1e6).round() as u32;
    let domain_hits_ppm = ppm(met.domain_hits);
    let shape = Shape {
        fragment_tokens: plot.fragment_tokens,
        context,
        hidden: model.hidden,
    };
    Ok(CountedTables {
        met: Met::Shares {
            domain_hits_ppm,
            fallbacks_ppm: ppm(met.fallbacks).min(1_000_000 - domain_hits_ppm),
        },
        domain_bytes: table_bytes(&shape, forecast.domain_fragments()),
    })
}

/// Hands on ticket, tenant and tokens of what the workload asks first. In a closed loop all who wait are answered at
/// once: tickets, tenants and lengths do not depend on when.
fn first_requests(workload: &mut dyn Workload, mut of: impl FnMut(u64, u32, u32)) -> Result<(), TraceError> {
    let (mut unanswered, mut seen, mut now) = (Vec::new(), 0, Time::ZERO);
    while seen < REQUESTS {
        match workload.peek()? {
            Some(at) => now = at,
            None if unanswered.is_empty() => break,
            None => {
                unanswered.drain(..).for_each(|ticket| workload.finished(now, ticket));
                continue;
            }
        }
        if let Some(Entry::Request(request)) = workload.next()? {
            of(request.ticket, request.tenant, request.input_tokens);
            unanswered.push(request.ticket);
            seen += 1;
        }
    }
    Ok(())
}

//! Fig. 13's hour with conversations, which fill cards' memory before their batches: requests are evicted, and go on
//! elsewhere.

use std::collections::BTreeMap;

use tenantry_core::command::Verdict;
use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::{Command, Commands, Observer, Server};
use tenantry_reports::RunSummary;
use tenantry_traces::Time;

use crate::cards::cluster;
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const FIGURE: &str = "Fig. 13";
/// The longest request of `punica/fig-13`: a prompt of 160 tokens and 201 new ones.
const LONGEST_TOKENS: u32 = 361;
const MAX_BATCH: u32 = 32;

/// Where requests that left a card went on, and what was answered.
#[derive(Debug, Default)]
struct Moves {
    /// Those that have left a card and are on no other yet: which they left.
    left: BTreeMap<RequestId, InstanceId>,
    elsewhere: u64,
    back: u64,
    /// Tokens of each request that was answered, by its ticket.
    tokens: BTreeMap<u64, u32>,
}

impl Observer for Moves {
    fn command(&mut self, _: Time, command: &Command, commands: &Commands) {
        match command {
            Command::Release { instance, request } => {
                self.left.insert(*request, *instance);
            }
            Command::Submit(submission) => {
                for member in commands.members(submission) {
                    match self.left.remove(&member.request) {
                        Some(from) if from == submission.instance => self.back += 1,
                        Some(_) => self.elsewhere += 1,
                        None => {}
                    }
                }
            }
            Command::Finish(finish) => {
                if let Some(request) = finish.request {
                    self.left.remove(&request);
                }
                if finish.verdict == Verdict::Served {
                    self.tokens.insert(finish.ticket, finish.output_tokens);
                }
            }
            _ => {}
        }
    }
}

fn watched(lab: &Lab, set: &[&str]) -> Result<(RunSummary, Moves), Failure> {
    let loaded = lab.load("punica/fig-13-conversations", set)?;
    let [run] = &loaded.runs[..] else {
        unreachable!("the scenario has one system")
    };
    let mut moves = Moves::default();
    let summary = lab.run(run, loaded.card(run), Some(&mut moves))?;
    Ok((summary, moves))
}

/// Pages of a card's cache and the tokens of each, in `punica/fig-13`.
fn pages(lab: &Lab) -> Result<(u32, u32), Failure> {
    let loaded = lab.load("punica/fig-13", &[])?;
    let run = &loaded.runs[0];
    let server = Server::new(&cluster(run, loaded.card(run)), &run.system, run.tenants).map_err(Failure::bad_input)?;
    match (server, &run.system.pool.generation) {
        (Server::Generation(server), Some(generation)) => Ok((server.pages_per_instance(), generation.page_tokens)),
        _ => unreachable!("the scenario generates"),
    }
}

/// Requests that leave cards for want of memory.
pub fn figure_13_conversations(lab: &Lab) -> Result<Vec<Row>, Failure> {
    let (pages, page_tokens) = pages(lab)?;
    let most = MAX_BATCH * LONGEST_TOKENS.div_ceil(page_tokens);
    let (run, moves) = watched(lab, &[])?;
    let (_, unbounded) = watched(lab, &["cluster.gpu_memory=1024GiB"])?;
    let counts = run.generation.expect("it generates");
    let requests = run.requests;
    let lost = requests.offered as f64 - requests.finished as f64 - requests.rejected as f64;
    let same = moves.tokens.iter().filter(|&(ticket, tokens)| unbounded.tokens.get(ticket) == Some(tokens));
    let same = same.count() as f64 / unbounded.tokens.len() as f64;
    let assumption = format!(
        "assumes ShareGPT's conversations with their earlier turns and a rise to 20 requests/s; of {} requests {} are \
         turned away, beyond the 4,096 positions of Llama 2",
        requests.offered, requests.rejected
    );
    let went_on = moves.elsewhere + moves.back;
    Ok(vec![
        Row::assumed(
            FIGURE,
            "pages of 32 requests at their longest, share of a card's",
            "%",
            None,
            100.0 * f64::from(most) / f64::from(pages),
        )
        .note(format!(
            "{MAX_BATCH} × {LONGEST_TOKENS} tokens on {most} of {pages} pages, assuming the lengths of Fig. 11: so \
             none of the runs above runs out of memory, as section 7.3 has it"
        ))
        .extrapolated(false),
        Row::shape(
            FIGURE,
            "conversations: requests evicted for want of pages, over those that are answered: some",
            "%",
            100.0 * counts.evictions as f64 / requests.finished as f64,
            counts.evictions > 0,
        )
        .note(format!(
            "the text says occasionally, without a number. {} evictions, {} requests moved off cards to be emptied, {} \
             tokens computed again; {assumption}",
            counts.evictions, counts.migrations, counts.recomputed_tokens
        )),
        Row::shape(
            FIGURE,
            "conversations: of those that left a card, went on at another",
            "%",
            100.0 * moves.elsewhere as f64 / went_on as f64,
            moves.elsewhere > moves.back,
        )
        .note(format!(
            "{} elsewhere, {} where they had been: the rule of placement is the same as for those that come",
            moves.elsewhere, moves.back
        )),
        Row::assumed(
            FIGURE,
            "conversations: mean batch of a step",
            "",
            None,
            run.batch_size_mean.unwrap_or(0.0),
        )
        .note(format!(
            "of {MAX_BATCH} at most: it is memory that limits it; {assumption}"
        )),
        Row::ours(
            FIGURE,
            "conversations: requests lost",
            "",
            lost,
            lost == 0.0 && requests.unfinished == 0,
        )
        .note("each that came was answered or turned away"),
        Row::ours(
            FIGURE,
            "conversations: requests with the same tokens where nobody is evicted, on cards of 1 TiB",
            "%",
            100.0 * same,
            same == 1.0 && unbounded.tokens.len() == moves.tokens.len(),
        ),
    ])
}

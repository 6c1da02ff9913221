//! What requests read.

use std::fmt;
use std::sync::Arc;

use tenantry_core::command::Finish;
use tenantry_core::op::Member;
use tenantry_traces::draw::{Draws, Purpose};

use super::texts::ServedTexts;
use crate::plot::Tables;

/// Keeps what tenants' prompts have in common apart from what is a request's own.
const TENANTS_PART: u64 = 1 << 32;

/// Ids of a request that has no text: the beginning that it has in common with its tenant's others, and its own, drawn
/// by its ticket.
pub(super) fn drawn_ids(
    draws: Draws,
    vocabulary: u64,
    (ticket, tenant): (u64, u32),
    (tokens, shared_tokens): (u32, u32),
) -> Vec<i64> {
    let (mut own, mut of_all) = (draws.about(ticket), draws.part(TENANTS_PART).about(tenant.into()));
    let shared = shared_tokens.min(tokens);
    let mut ids: Vec<i64> = (0..shared).map(|_| of_all.below(vocabulary) as i64).collect();
    ids.extend((shared..tokens).map(|_| own.below(vocabulary) as i64));
    ids
}

/// Ids of a batch's member that has no text and nothing in common with others.
pub(super) fn ids_of(draws: Draws, vocabulary: u64, member: &Member) -> Vec<i64> {
    drawn_ids(
        draws,
        vocabulary,
        (member.ticket, member.tenant),
        (member.input_tokens, 0),
    )
}

/// What the requests of a run read.
pub struct Inputs(Origin);

enum Origin {
    /// Drawn, with so many tokens that a tenant's requests begin with.
    Drawn {
        draws: Draws,
        shared_tokens: u32,
        vocabulary_of: Box<VocabularyOf>,
    },
    /// Texts of the tables that are looked up in.
    Tables(Tables),
    /// Texts that came with the models.
    Items(Arc<ServedTexts>),
}

/// How many tokens the model knows that a request is read by first.
type VocabularyOf = dyn Fn(&Finish) -> u64;

impl Inputs {
    /// Ids from the vocabulary of the model that reads a request, with so many tokens that a tenant's requests begin
    /// with.
    pub(super) fn drawn(seed: u64, shared_tokens: u32, vocabulary_of: impl Fn(&Finish) -> u64 + 'static) -> Inputs {
        Inputs(Origin::Drawn {
            draws: Draws::new(seed, Purpose::Tokens),
            shared_tokens,
            vocabulary_of: Box::new(vocabulary_of),
        })
    }

    pub(super) fn of_tables(tables: &Tables) -> Inputs {
        Inputs(Origin::Tables(tables.clone()))
    }

    pub(super) fn items(texts: Arc<ServedTexts>) -> Inputs {
        Inputs(Origin::Items(texts))
    }

    /// The token ids that a request's model, or the first of a cascade's, read: what is left of them for the next is
    /// not known any more. Nothing for a text that came with the models: [`Inputs::item`] says which that is.
    pub fn ids(&self, of: &Finish) -> Option<Vec<i64>> {
        let (who, tokens) = ((of.ticket, of.tenant), of.input_tokens);
        match &self.0 {
            Origin::Drawn {
                draws,
                shared_tokens,
                vocabulary_of,
            } => Some(drawn_ids(*draws, vocabulary_of(of), who, (tokens, *shared_tokens))),
            Origin::Tables(tables) => {
                let ids = tables.prompt(of.ticket, of.tenant, tokens);
                Some(ids.into_iter().map(i64::from).collect())
            }
            Origin::Items(_) => None,
        }
    }

    /// Which of the models' own texts a request is.
    pub fn item(&self, ticket: u64) -> Option<u64> {
        match &self.0 {
            Origin::Items(texts) => Some(texts.item(ticket) as u64),
            _ => None,
        }
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").finish_non_exhaustive()
    }
}

//! What a kind of pool tells of itself, to be served on the real machine.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tenantry_core::machine::LookupCounts;
use tenantry_core::topology::{Lane, Topology};

use super::cascading::KeptStates;
use super::generating::{Generated, GeneratedTokens};
use super::inputs::Inputs;
use super::serving::{Answer, Tagged};
use super::texts::{Number, ServedTexts};
use super::threads::Perform;
use crate::error::ExecutorError;

/// Answers so far: all lanes add to it.
pub(super) type AnswerList = Arc<Mutex<Vec<Answer>>>;

/// The parameters of a pool and its tenants, all that must exist before the first request, and what came of them. What
/// a kind of pool has nothing of is left as it is here.
pub(super) trait PoolServing {
    /// Who does each lane's ops. `answers` receives the likeliest class of each pass.
    fn lanes(&self, topology: &Topology, answers: &AnswerList) -> Vec<(Lane, Box<dyn Perform>)>;

    /// What its requests read.
    fn inputs(&self) -> Inputs;

    /// Makes the new versions that management requests bring; none where the server refuses such requests.
    ///
    /// # Errors
    /// No room for them in the folder for temporary files, or the user stopped it.
    fn make_versions(&mut self, _interrupt: &AtomicBool) -> Result<(), ExecutorError> {
        Ok(())
    }

    /// Whether some of tenants' parameters are read from the folder for temporary files.
    fn has_stored_blocks(&self) -> bool {
        false
    }

    /// The texts that trained models answer; none where token ids are drawn.
    fn texts(&self) -> Option<Arc<ServedTexts>> {
        None
    }

    /// The states of requests that may go on, to be told who has left.
    fn kept_states(&self) -> Option<Arc<KeptStates>> {
        None
    }

    /// What the lanes look up, counted; nothing where they look nothing up.
    fn lookups(&self) -> Option<Arc<Mutex<LookupCounts>>> {
        None
    }

    /// Bytes of tenants' parameters in host memory.
    fn host_bytes(&self) -> u64 {
        0
    }

    /// Parameter sets in host memory that differ, where tenants must share some; nothing where each has its own.
    fn shared_sets(&self) -> Option<u32> {
        None
    }

    /// Why tenants' parameters or heads are missing, whose requests fail: a reason for each of their files.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// The tokens of requests that have not left, of which those that have need not be kept.
    fn generated_tokens(&self) -> Option<GeneratedTokens> {
        None
    }

    /// Takes the numbers that regressions have answered so far, by ticket and stage.
    fn numbers(&self) -> Vec<Number> {
        Vec::new()
    }

    /// Takes the labels that tokens have got so far, by ticket.
    fn tagged(&self) -> Vec<Tagged> {
        Vec::new()
    }

    /// Takes the tokens that each request has got so far, by ticket; of requests that were cancelled or failed, what
    /// they had until then.
    fn generated(&self) -> Vec<Generated> {
        Vec::new()
    }
}

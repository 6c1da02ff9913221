//! What a machine does, in model terms and never in seconds: the virtual machine prices it, the real one does it.

use std::ops::Range;

use tenantry_profiles::{PetKind, PoolBatching};
use tenantry_traces::Subject;

use crate::ids::{BatchId, InstanceId, LaneId, RequestId};
use crate::spec::{LookupsInSteps, RuntimeRef};

/// A run of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layers {
    /// The first.
    pub first: u16,
    /// How many.
    pub count: u16,
}

impl Layers {
    /// The first `count` layers.
    pub fn all(count: u32) -> Layers {
        Layers::from(0, count)
    }

    /// The layers from `first` up to `end`, which is not among them.
    pub fn from(first: u32, end: u32) -> Layers {
        let layer = |layer: u32| u16::try_from(layer).expect("fewer than 65,536 layers");
        Layers {
            first: layer(first),
            count: layer(end - first),
        }
    }

    /// Each as a run of its own.
    pub fn each(self) -> impl Iterator<Item = Layers> {
        (self.first..self.first + self.count).map(|first| Layers { first, count: 1 })
    }

    /// As a range of indices.
    pub fn range(self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.first) + usize::from(self.count)
    }
}

/// Copies tenants' parameters from host memory into their slots on the card: those in the submission's `loads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyIn {
    /// Which layers' parameters.
    pub layers: Layers,
    /// Separate copies that this takes.
    pub chunks: u32,
    /// Size of each, in bytes.
    pub chunk_bytes: u64,
}

/// Finds the precomputed representations of the batch's fragments and adds them up to hidden states, in host memory
/// (HMI, Eq. 2 and 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Of all requests together.
    pub tokens: u32,
    /// That they have, likewise: what is looked up.
    pub fragments: u32,
}

/// Changes what lies in host memory for a tenant or a domain (HMI, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Reads the new version of a tenant's parameters or a domain's table from where it was made, and puts it in the
    /// old one's place.
    Store {
        /// Whose.
        subject: Subject,
        /// Its size.
        bytes: u64,
    },
    /// Lets go of it.
    Discard {
        /// Whose.
        subject: Subject,
    },
}

/// Reads a tenant's parameters from the disk into host memory: those of the submission's first load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Their size.
    pub bytes: u64,
    /// In the place of whatever this slot of host memory held.
    pub slot: u32,
}

/// Copies pages of the key-value cache of the submission's member from the instance that took its prompt in to the one
/// that it goes on at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where they are.
    pub from: InstanceId,
    /// Of the sequence's pages, the first that is copied: those before are there, shared with others.
    pub first_page: u32,
    /// How many.
    pub pages: u32,
    /// What a card holds of each: where several cards share an instance's layers, each copies its own part to its
    /// counterpart.
    pub page_bytes: u64,
}

/// Copies what was looked up to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Size of the hidden states.
    pub bytes: u64,
}

/// A part of an encoder's forward pass over the batch, with each tenant's own parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encode {
    /// Whether it is the batch's first.
    pub begin: bool,
    /// Whether it begins with the embedding; where it does not, the first begins with hidden states that were looked
    /// up.
    pub embed: bool,
    /// Which layers.
    pub layers: Layers,
    /// Whether it ends with the tenants' heads.
    pub heads: bool,
}

/// A whole forward pass of a shared model over the batch, and in each layer every task's own operators over its groups:
/// those of the submission. A model that is one task's own has a group where operators are beside it, and none where
/// they are merged into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pet {
    /// Which of the pool's models: its own is 0.
    pub model: u16,
    /// Streams that the operators run on, at least 1.
    pub streams: u16,
}

/// Neighbouring members of a batch that one task's operators serve together: a mini-batch (PetS, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PetGroup {
    /// Whose, by tenant.
    pub task: u32,
    /// Of the task.
    pub kind: PetKind,
    /// Members; groups follow each other as members do.
    pub count: u32,
    /// The longest of them.
    pub tokens: u32,
    /// Which stream, below the op's.
    pub stream: u16,
}

/// Steps of a decoder. In the first, the submission's members take a chunk of their prompts into the cache. Each step
/// gives a new token to those whose prompt is complete, and to all who go on: a submission names nobody again whose
/// prompt an earlier run has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Ends after so many, or sooner.
    pub max_steps: u32,
    /// When it ends sooner, beside an interrupt.
    pub until: Until,
    /// What its steps look up.
    pub lookups: LookupsInSteps,
    /// Who makes tokens beside the submission's members.
    pub going_on: GoingOn,
}

/// Requests whose prompts are complete: they are in every run of their instance until they are parked or released
/// ([`crate::Command::Park`], [`crate::Command::Release`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoingOn {
    /// How many.
    pub requests: u32,
    /// What they have in the cache before the first step, together.
    pub cached_tokens: u64,
}

/// When a run of steps ends before its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// A member has its last token.
    FirstEnds,
    /// All have.
    AllEnd,
}

/// One request through a runtime, padded to the batch's shape where the runtime is a static one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Infer {
    /// Which runtime the instance has.
    pub runtime: RuntimeRef,
}

/// Puts a runtime in the place of whatever the instance had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRuntime {
    /// Which.
    pub runtime: RuntimeRef,
    /// Size of its weights.
    pub bytes: u64,
}

/// Brings a model onto a card: a stage's, for all of its instances there, or an instance's part of the model that
/// generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadModel {
    /// Size of its weights.
    pub bytes: u64,
}

/// Solves the allocation program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solve {
    /// Index among the questions of the [`crate::command::Commands`] that carries it.
    pub question: u32,
    /// Instances to be given out.
    pub instances: u32,
    /// Runtimes of all streams.
    pub runtimes: u32,
}

/// Splits the queries of a pool to one shared model into batches (PetS, Algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanPool {
    /// Index among the pools of the [`crate::command::Commands`] that carries it.
    pub pool: u32,
    /// Which of its models.
    pub model: u16,
    /// By which rules, one after the other.
    pub rules: &'static [PoolBatching],
    /// Different tasks among the queries.
    pub tasks: u32,
    /// Queries.
    pub queries: u32,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Representations from a table.
    Lookup(Lookup),
    /// Those representations into the card's memory.
    Stage(Stage),
    /// Parameters into host memory.
    Fetch(Fetch),
    /// Parameters into the card's memory.
    CopyIn(CopyIn),
    /// Keys and values from card to card.
    Transfer(Transfer),
    /// Part of a forward pass.
    Encode(Encode),
    /// Steps of a decoder.
    Run(Run),
    /// A forward pass over several tasks.
    Pet(Pet),
    /// What a dispatcher needs of a pass that has just been made: each request's confidence, and the attention that its
    /// words were paid (Tabi, section 7.5).
    Inspect,
    /// Something of a tenant or a domain in host memory.
    Manage(Manage),
    /// One request through a runtime.
    Infer(Infer),
    /// A runtime into an instance.
    LoadRuntime(LoadRuntime),
    /// A model onto a card: a stage's, or the one that generates.
    LoadModel(LoadModel),
    /// How many instances of each runtime.
    Solve(Solve),
    /// Which queries of a pool run together.
    PlanPool(PlanPool),
}

impl OpKind {
    /// Whether it is what a batch is for: the others bring in what it needs.
    #[inline]
    pub fn computes(&self) -> bool {
        matches!(
            self,
            OpKind::Encode(_) | OpKind::Run(_) | OpKind::Pet(_) | OpKind::Inspect | OpKind::Infer(_)
        )
    }

    /// Whether it takes its batch through a model once: a decoder's run does so step by step.
    #[inline]
    pub fn is_pass(&self) -> bool {
        matches!(self, OpKind::Encode(_) | OpKind::Pet(_) | OpKind::Infer(_))
    }
}

/// Ops of the same batch that must have ended before this one starts, by index; those on the same lane are implied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After([u8; 2]);

impl After {
    const NOTHING: u8 = u8::MAX;
    /// May start at once.
    pub const NONE: After = After([After::NOTHING; 2]);

    /// Waits for one op.
    pub fn op(index: usize) -> After {
        After([After::index(index), After::NOTHING])
    }

    /// Waits for two ops at most.
    pub fn both(first: Option<usize>, second: Option<usize>) -> After {
        After([first, second].map(|op| op.map_or(After::NOTHING, After::index)))
    }

    /// The indices waited for.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().filter(|&i| i != After::NOTHING).map(usize::from)
    }

    fn index(index: usize) -> u8 {
        u8::try_from(index)
            .ok()
            .filter(|&i| i != After::NOTHING)
            .expect("a batch has fewer than 255 ops")
    }
}

/// One op on one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What is done.
    pub kind: OpKind,
    /// Where; a lane's ops run in the order of their submission.
    pub lane: LaneId,
    /// What must have ended before.
    pub after: After,
    /// Whether the batch that the instance was given before must have ended too.
    pub behind: bool,
    /// Whether the server hears of its end.
    pub told: bool,
}

impl Op {
    /// An op that waits for nothing and whose end is told.
    #[inline]
    pub fn alone(kind: OpKind, lane: LaneId) -> Op {
        Op {
            kind,
            lane,
            after: After::NONE,
            behind: false,
            told: true,
        }
    }
}

/// The sizes that determine what a batch costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Requests in the batch, those who go on included.
    pub requests: u32,
    /// Tokens that each is padded to.
    pub tokens: u32,
    /// Tokens of all, without padding.
    pub input_tokens: u32,
    /// Different tenants among them.
    pub tenants: u32,
}

impl BatchShape {
    /// Of a batch without requests: a load, a solver's question, or a pool's plan.
    pub const NOTHING: BatchShape = BatchShape {
        requests: 0,
        tokens: 0,
        input_tokens: 0,
        tenants: 0,
    };
}

/// A request in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The server's handle.
    pub request: RequestId,
    /// Key of its draws and of its recorded input.
    pub ticket: u64,
    /// Whose parameters.
    pub tenant: u32,
    /// Tokens before padding.
    pub input_tokens: u32,
    /// Slot of the tenant's parameters on the card; `NO_SLOT` where all is resident.
    pub slot: u32,
    /// Of a decoder's run.
    pub sequence: Sequence,
}

/// Pages at the beginning of a sequence that its tenant's other sequences on the instance read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Which of the instance's.
    pub id: u32,
    /// Of it, the first so many.
    pub pages: u32,
}

/// How far a member of a decoder's run is. All zero for encoders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// What it shares of the cache.
    pub prefix: Option<SharedPrefix>,
    /// Its tokens in the cache.
    pub cached_tokens: u32,
    /// Tokens that come into the cache in the first step; 0 where that is the token made last.
    pub chunk_tokens: u32,
    /// Whether those are the last of its prompt, so that the first step makes a token.
    pub completes: bool,
    /// Tokens made so far.
    pub generated_tokens: u32,
    /// Tokens to be made. Policies never see it: only the machine, which would know by the end-of-sequence token.
    pub output_tokens: u32,
}

impl Sequence {
    /// Tokens whose fragments the next step of a run looks up: one for each, since a decoder's fragments end at the
    /// tokens that they stand for.
    pub fn looked_up(&self, lookups: LookupsInSteps) -> u32 {
        match (lookups, self.chunk_tokens) {
            (LookupsInSteps::None, _) => 0,
            (_, 0) => 1,
            (LookupsInSteps::NewTokens, _) => 0,
            (LookupsInSteps::All, chunk) => chunk,
        }
    }
}

/// A member without parameters of its own to be swapped.
pub const NO_SLOT: u32 = u32::MAX;

/// Parameters of a tenant that come into a slot, over whatever was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whose.
    pub tenant: u32,
    /// Where to.
    pub slot: u32,
}

/// A batch handed to a machine. The ranges point into the [`crate::command::Commands`] that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The server's handle.
    pub batch: BatchId,
    /// Who runs it.
    pub instance: InstanceId,
    /// Its sizes.
    pub shape: BatchShape,
    /// Its requests; of a run of steps, those whose prompts it takes in: see [`GoingOn`].
    pub members: Range<usize>,
    /// What must be copied in.
    pub loads: Range<usize>,
    /// Its mini-batches, where tasks share a model.
    pub groups: Range<usize>,
    /// What is to be done, in order.
    pub ops: Range<usize>,
}

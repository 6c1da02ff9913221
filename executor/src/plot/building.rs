//! How tables are built: which lengths of fragments a node of the version tree has, of which texts, by which version of
//! the lower layers.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::path::Path;

use tenantry_plot::{
    BuildSpec, Builder, COUNTING_BYTES, Cause, Context, Encode, Node, PlotError, Progress, Select, Shape, Texts, Tree,
};
use tenantry_profiles::{ModelKind, ModelShape};

use crate::error::ExecutorError;

/// What building goes through, for a line of progress.
#[derive(Clone, Copy, Debug)]
pub struct Building<'a> {
    /// Of the version tree: `root`, or a domain's.
    pub node: &'a str,
    /// Tokens of the table's fragments.
    pub fragment_tokens: u32,
    /// How far it is.
    pub progress: Progress,
}

/// Told how the building of tables goes on, and says whether it is to. What was built until then is gone on with.
pub type WatchBuilding<'a> = &'a mut dyn FnMut(Building<'_>) -> ControlFlow<()>;

/// Whose lower layers fill a table (HMI, section 5.1): the generic model's, or those that further pretraining made of
/// them for a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Root,
    Domain(u32),
    /// What an update of a domain brings.
    Updated(u32),
}

/// Runs a version of the lower layers over fragments of so many tokens: from `[count, tokens]` to
/// `[count, tokens, hidden]` or, for a decoder, to `[count, hidden]`.
pub(crate) type EncodeFragments<'a> = &'a mut dyn FnMut(Version, usize, &[u32], &mut [f32]) -> Result<(), Cause>;

/// Fragments encoded at once.
const CHUNK_FRAGMENTS: u32 = 1024;

/// The shape of a model's table of fragments of so many tokens.
pub(crate) fn shape_of(model: &ModelShape, fragment_tokens: u32) -> Shape {
    Shape {
        fragment_tokens,
        context: match model.kind {
            ModelKind::Encoder => Context::Both,
            ModelKind::Decoder => Context::Preceding,
        },
        hidden: model.hidden,
    }
}

/// A version tree being built.
pub(crate) struct TreeBuilding<'a, 'b, 'c> {
    pub tree: &'a Path,
    /// Of the longest fragments.
    pub shape: Shape,
    /// Of the layers.
    pub name: &'a str,
    pub encode: EncodeFragments<'b>,
    pub watch: WatchBuilding<'c>,
}

impl TreeBuilding<'_, '_, '_> {
    /// The root's table, and those of shorter fragments that stand in for what it has not.
    pub fn root(&mut self, texts: &Texts, select: Select) -> Result<(), ExecutorError> {
        self.shorter(texts)?;
        self.root_table(
            self.shape.fragment_tokens,
            select,
            texts.whole_corpus(self.shape.context),
        )
    }

    /// The root's tables of shorter fragments.
    pub fn shorter(&mut self, texts: &Texts) -> Result<(), ExecutorError> {
        let context = self.shape.context;
        for fragment_tokens in shorter(self.shape) {
            self.root_table(fragment_tokens, Select::All, texts.whole_corpus(context))?;
        }
        Ok(())
    }

    /// The tree, if its root has all the tables that were built: it opens without one as well, and would answer as if
    /// no text had such fragments.
    pub fn check_root(&self, tree: Tree) -> Result<Tree, PlotError> {
        let snapshot = tree.snapshot();
        let tables = snapshot.root().tables();
        let is_there = |tokens: &u32| tables.iter().any(|table| table.shape().fragment_tokens == *tokens);
        match shorter(self.shape).find(|tokens| !is_there(tokens)) {
            None => Ok(tree),
            Some(tokens) => Err(PlotError::Field {
                path: tables[0].path().with_file_name(format!("{tokens}.plot")),
                field: "table",
                must: "there".into(),
                got: "no such file".into(),
            }),
        }
    }

    /// One of the root's tables.
    pub fn root_table(
        &mut self,
        fragment_tokens: u32,
        select: Select,
        corpus: impl Iterator<Item = Vec<u32>>,
    ) -> Result<(), ExecutorError> {
        self.table(Node::Root, "root", Version::Root, fragment_tokens, select, corpus)
    }

    /// A domain's table.
    pub fn domain(
        &mut self,
        name: &str,
        version: Version,
        select: Select,
        corpus: impl Iterator<Item = Vec<u32>>,
    ) -> Result<(), ExecutorError> {
        self.table(
            Node::Domain(name),
            name,
            version,
            self.shape.fragment_tokens,
            select,
            corpus,
        )
    }

    fn table(
        &mut self,
        node: Node<'_>,
        node_name: &str,
        version: Version,
        fragment_tokens: u32,
        select: Select,
        corpus: impl Iterator<Item = Vec<u32>>,
    ) -> Result<(), ExecutorError> {
        let path = Tree::stage(self.tree, node)?.join(format!("{fragment_tokens}.plot"));
        if Builder::is_done(&path)? {
            return Ok(());
        }
        let spec = BuildSpec {
            shape: self.shape.with_fragment_tokens(fragment_tokens),
            select,
            chunk_fragments: CHUNK_FRAGMENTS,
            memory_bytes: COUNTING_BYTES,
        };
        let mut encoder = Named {
            name: match version {
                Version::Root => self.name.to_owned(),
                Version::Domain(domain) => format!("{}-of-domain-{domain}", self.name),
                Version::Updated(domain) => format!("{}-of-domain-{domain}-updated", self.name),
            },
            version,
            fragment_tokens: fragment_tokens as usize,
            encode: &mut *self.encode,
        };
        let mut tell = |progress| {
            (self.watch)(Building {
                node: node_name,
                fragment_tokens,
                progress,
            })
        };
        let texts = corpus.map(Ok::<_, Infallible>);
        Builder::open(&path, spec)?.run(texts, &mut encoder, &mut tell)?;
        Ok(())
    }
}

/// Tokens of the shorter fragments that stand in for those of this shape. Each text of a decoder begins with a fragment
/// of every shorter length. Of an encoder's fragments longer than three, the parts of one or two are enough: all
/// lengths would each take as much as the longest.
fn shorter(shape: Shape) -> impl Iterator<Item = u32> {
    let stands_in = move |tokens: &u32| shape.context == Context::Preceding || *tokens <= 2;
    (1..shape.fragment_tokens).filter(stands_in)
}

/// Layers and their name.
struct Named<'a> {
    name: String,
    version: Version,
    fragment_tokens: usize,
    encode: EncodeFragments<'a>,
}

impl Encode for Named<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        (self.encode)(self.version, self.fragment_tokens, fragments, rows)
    }
}

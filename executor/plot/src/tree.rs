//! The version tree (HMI, 5.1): a root table, and one for each domain with its most frequent fragments.
//!
//! On disk a node is a folder, `root/` or `domains/NAME/`, with a folder for its version in use, `v7/`, that holds a
//! table for each length of fragment, `3.plot`, `2.plot`, `1.plot`; `CURRENT` names the version. A new version is built
//! in `next/` and published by renames; who looks up in the old one meanwhile keeps it, since open files outlive their
//! names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::draft::{publish, sync_folder};
use crate::{PlotError, Shape, Table, Tier};

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// The generic model's tables.
    Root,
    /// A domain's, by name: lower-case letters, digits, `-` and `_`.
    Domain(&'a str),
}

impl Node<'_> {
    fn folder(&self, tree: &Path) -> Result<PathBuf, PlotError> {
        let Node::Domain(name) = self else {
            return Ok(tree.join("root"));
        };
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        match !name.is_empty() && name.bytes().all(plain) {
            true => Ok(tree.join("domains").join(name)),
            false => Err(PlotError::input(
                "domain",
                "a name of lower-case letters, digits, - and _",
                format!("`{name}`"),
            )),
        }
    }
}

/// The domain of a sequence: valid in the tree that gave it, also after the domain was updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u32);

/// A node's tables in one version: one for each length of fragment.
pub struct Branch {
    version: u64,
    /// The longest fragments first.
    tables: Vec<Table>,
}

impl Branch {
    /// The version of this number in a node's folder.
    fn open(folder: &Path, version: u64, tier: Tier) -> Result<Branch, PlotError> {
        Branch::read(folder.join(format!("v{version}")), version, tier)
    }

    fn read(folder: PathBuf, version: u64, tier: Tier) -> Result<Branch, PlotError> {
        let mut tables = Vec::new();
        for entry in fs::read_dir(&folder).map_err(PlotError::io(&folder))? {
            let path = entry.map_err(PlotError::io(&folder))?.path();
            if path.extension().is_some_and(|extension| extension == "building") {
                return Err(PlotError::field(
                    &path,
                    "tables",
                    "built to the end",
                    "an interrupted build",
                ));
            }
            if path.extension().is_some_and(|extension| extension == "plot") {
                tables.push(Table::open(path, tier)?);
            }
        }
        tables.sort_by_key(|table| std::cmp::Reverse(table.shape().fragment_tokens));
        let Some(first) = tables.first() else {
            return Err(PlotError::field(&folder, "tables", "at least one *.plot", "none"));
        };
        for pair in tables.windows(2) {
            let fragment_tokens = pair[1].shape().fragment_tokens;
            pair[1].require(&first.shape().with_fragment_tokens(fragment_tokens))?;
            if fragment_tokens == pair[0].shape().fragment_tokens {
                let got = format!("{fragment_tokens}, as {}", pair[0].path().display());
                return Err(PlotError::field(
                    pair[1].path(),
                    "fragment_tokens",
                    "another for each table",
                    got,
                ));
            }
        }
        Ok(Branch { version, tables })
    }

    /// Which version of the node this is; versions count up.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The shape of its longest fragments' table.
    pub fn shape(&self) -> &Shape {
        self.tables[0].shape()
    }

    /// Its tables, the longest fragments first.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    #[inline]
    pub(crate) fn table(&self, fragment_tokens: usize) -> Option<&Table> {
        self.tables.iter().find(|table| table.shape().fragment_tokens as usize == fragment_tokens)
    }
}

/// The tree as it is at one moment. Who holds it keeps its tables, whatever is published or deleted meanwhile.
#[derive(Clone)]
pub struct Snapshot {
    root: Arc<Branch>,
    names: BTreeMap<String, DomainId>,
    domains: Vec<Option<Arc<Branch>>>,
}

impl Snapshot {
    /// The root's tables.
    pub fn root(&self) -> &Branch {
        &self.root
    }

    /// A domain's identity, for [`crate::Batch`]. Names are resolved once, not for each batch.
    pub fn domain(&self, name: &str) -> Option<DomainId> {
        self.names.get(name).copied()
    }

    /// The domains' names.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    fn set(&mut self, domain: &str, branch: Branch) {
        let branch = Some(Arc::new(branch));
        match self.names.get(domain) {
            Some(id) => self.domains[id.0 as usize] = branch,
            None => {
                self.names.insert(domain.to_string(), DomainId(self.domains.len() as u32));
                self.domains.push(branch);
            }
        }
    }

    /// A domain's tables.
    ///
    /// # Errors
    ///
    /// If the domain has been deleted: its tenants must not silently get the root's answers.
    pub fn branch(&self, domain: DomainId) -> Result<&Branch, PlotError> {
        let branch = self.domains.get(domain.0 as usize).and_then(Option::as_deref);
        branch.ok_or_else(|| PlotError::input("domain", "one of the tree's", format!("{} (deleted)", domain.0)))
    }
}

/// Where each node's rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// The root's, the large one.
    pub root: Tier,
    /// The domains'.
    pub domains: Tier,
}

/// A version tree in a folder. One process publishes; any number may look up.
pub struct Tree {
    folder: PathBuf,
    tiers: Tiers,
    now: RwLock<Arc<Snapshot>>,
    publishing: Mutex<()>,
}

impl Tree {
    /// The folder in which the next version of a node is to be built, a table for each length of fragment, named
    /// `3.plot` and so on. It stays the same until that version is published, so that an interrupted build is found
    /// again.
    ///
    /// # Errors
    ///
    /// If the name is none, or the folder cannot be made.
    pub fn stage(tree: impl AsRef<Path>, node: Node) -> Result<PathBuf, PlotError> {
        let next = node.folder(tree.as_ref())?.join("next");
        fs::create_dir_all(&next).map_err(PlotError::io(&next))?;
        Ok(next)
    }

    /// Founds a tree on the root tables built in [`Tree::stage`]`(tree, Node::Root)`.
    ///
    /// # Errors
    ///
    /// As [`Tree::publish`].
    pub fn found(folder: impl AsRef<Path>, tiers: Tiers) -> Result<Tree, PlotError> {
        let root = Node::Root.folder(folder.as_ref())?;
        promote(&root, tiers.root, &|_| Ok(()))?;
        Tree::open(folder, tiers)
    }

    /// Opens a tree with all its domains.
    ///
    /// # Errors
    ///
    /// If there is no root, a table is refused (see [`Table::open`]), or a domain's shape is not the root's.
    pub fn open(folder: impl AsRef<Path>, tiers: Tiers) -> Result<Tree, PlotError> {
        let folder = folder.as_ref().to_path_buf();
        let root = Node::Root.folder(&folder)?;
        let must = || {
            PlotError::field(
                &root,
                "CURRENT",
                "a version's name; found the tree first",
                "no such file",
            )
        };
        let version = current(&root)?.ok_or_else(must)?;
        let root = Branch::open(&root, version, tiers.root)?;
        let (mut names, mut domains) = (BTreeMap::new(), Vec::new());
        for name in domain_names(&folder)? {
            let path = Node::Domain(&name).folder(&folder)?;
            // One that was staged and never published is none yet.
            let Some(version) = current(&path)? else { continue };
            let branch = Branch::open(&path, version, tiers.domains)?;
            agree(&root, &branch)?;
            names.insert(name, DomainId(domains.len() as u32));
            domains.push(Some(Arc::new(branch)));
        }
        let snapshot = Snapshot {
            root: Arc::new(root),
            names,
            domains,
        };
        Ok(Tree {
            folder,
            tiers,
            now: RwLock::new(Arc::new(snapshot)),
            publishing: Mutex::new(()),
        })
    }

    /// The tree as it is now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes what was built in [`Tree::stage`]: creates a domain, or puts the new version of a node in place of the
    /// old at once. Look-ups that hold an older [`Snapshot`] go on in it; its files leave the disk when the last one is
    /// dropped.
    ///
    /// # Errors
    ///
    /// If nothing was built, a table is refused, or its shape is not the tree's. The old version then stays, on disk
    /// and in use.
    pub fn publish(&self, node: Node) -> Result<(), PlotError> {
        let _one = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = node.folder(&self.folder)?;
        let mut next = Snapshot::clone(&self.snapshot());
        match node {
            Node::Root => {
                let check =
                    |branch: &Branch| next.domains.iter().flatten().try_for_each(|domain| agree(branch, domain));
                let branch = promote(&folder, self.tiers.root, &check)?;
                next.root = Arc::new(branch);
            }
            Node::Domain(name) => {
                let branch = promote(&folder, self.tiers.domains, &|branch| agree(&next.root, branch))?;
                next.set(name, branch);
            }
        }
        self.swap(next);
        Ok(())
    }

    /// Reads a node's version in use anew, as it lies on the disk: what another process has published. Look-ups that
    /// hold an older [`Snapshot`] go on in it.
    ///
    /// # Errors
    ///
    /// If there is none, a table is refused, or its shape is not the tree's. What was in use then stays so.
    pub fn reload(&self, node: Node) -> Result<(), PlotError> {
        let _one = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = node.folder(&self.folder)?;
        let must = || PlotError::field(&folder, "CURRENT", "a version's name", "no such file");
        let version = current(&folder)?.ok_or_else(must)?;
        let mut next = Snapshot::clone(&self.snapshot());
        match node {
            Node::Root => {
                let branch = Branch::open(&folder, version, self.tiers.root)?;
                next.domains.iter().flatten().try_for_each(|domain| agree(&branch, domain))?;
                next.root = Arc::new(branch);
            }
            Node::Domain(name) => {
                let branch = Branch::open(&folder, version, self.tiers.domains)?;
                agree(&next.root, &branch)?;
                next.set(name, branch);
            }
        }
        self.swap(next);
        Ok(())
    }

    /// Puts what was built in [`Tree::stage`] in place of a domain's tables in memory alone. On the disk the published
    /// version stays in use: [`Tree::reload`] brings it back, and who opens the tree finds it.
    ///
    /// # Errors
    ///
    /// If there is no such domain, nothing was built, a table is refused, or its shape is not the tree's. What was in
    /// use then stays so.
    pub fn preview(&self, domain: &str) -> Result<(), PlotError> {
        let _one = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Snapshot::clone(&self.snapshot());
        let id = next.domain(domain);
        let id = id.ok_or_else(|| PlotError::input("domain", "one of the tree's", format!("`{domain}`")))?;
        let version = next.branch(id)?.version() + 1;
        let staged = Node::Domain(domain).folder(&self.folder)?.join("next");
        let branch = Branch::read(staged, version, self.tiers.domains)?;
        agree(&next.root, &branch)?;
        next.set(domain, branch);
        self.swap(next);
        Ok(())
    }

    /// Deletes a domain. Look-ups that hold an older [`Snapshot`] go on in it; later ones get an error, not the root's
    /// answers.
    ///
    /// # Errors
    ///
    /// If there is no such domain, or its folder cannot be removed.
    pub fn delete(&self, domain: &str) -> Result<(), PlotError> {
        let _one = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Snapshot::clone(&self.snapshot());
        let Some(id) = next.names.remove(domain) else {
            let names: Vec<&str> = next.domains().collect();
            return Err(PlotError::input(
                "domain",
                format!("one of {}", names.join(", ")),
                format!("`{domain}`"),
            ));
        };
        next.domains[id.0 as usize] = None;
        let folder = Node::Domain(domain).folder(&self.folder)?;
        // Without `CURRENT` there is no domain, however far the removal comes.
        let current = folder.join("CURRENT");
        fs::remove_file(&current).map_err(PlotError::io(&current))?;
        self.swap(next);
        fs::remove_dir_all(&folder).map_err(PlotError::io(&folder))
    }

    fn swap(&self, next: Snapshot) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }
}

fn agree(root: &Branch, branch: &Branch) -> Result<(), PlotError> {
    // A domain may leave shorter fragments to the root; its longest must be the root's.
    branch.tables[0].require(root.shape())
}

fn domain_names(tree: &Path) -> Result<Vec<String>, PlotError> {
    let folder = tree.join("domains");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(PlotError::io(&folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(PlotError::io(&folder))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The version that `CURRENT` names, if the node was ever published.
fn current(folder: &Path) -> Result<Option<u64>, PlotError> {
    let path = folder.join("CURRENT");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PlotError::io(&path)(error)),
    };
    let version = text.trim_end().strip_prefix('v').and_then(|number| number.parse().ok());
    version
        .map(Some)
        .ok_or_else(|| PlotError::field(&path, "version", "v and a number", format!("`{}`", text.trim_end())))
}

/// Makes `next` the node's version in use, if its tables open and `check` agrees; removes the older ones.
fn promote(folder: &Path, tier: Tier, check: &dyn Fn(&Branch) -> Result<(), PlotError>) -> Result<Branch, PlotError> {
    let mut version = current(folder)?.unwrap_or(0) + 1;
    // A number may be taken by a version that was renamed, and then killed before `CURRENT` named it.
    while folder.join(format!("v{version}")).exists() {
        version += 1;
    }
    let next = folder.join("next");
    let name = format!("v{version}");
    let path = folder.join(&name);
    // Reading a table into memory takes a while: whoever is killed meanwhile has lost nothing of what was built.
    let mut branch = Branch::read(next.clone(), version, tier)?;
    check(&branch)?;
    fs::rename(&next, &path).map_err(PlotError::io(&next))?;
    branch.tables.iter_mut().for_each(|table| table.renamed(&path));
    let named = sync_folder(&path).and_then(|()| {
        publish(&folder.join("CURRENT"), |file| {
            io::Write::write_all(file, format!("{name}\n").as_bytes())
        })
    });
    let committed = named.map(|()| branch);
    match &committed {
        // What is left over takes space and is tried again at the next publishing; the version is in use all the same.
        Ok(_) => drop(remove_other_versions(folder, &name)),
        // It may have its name, and only not be known to outlast a power failure: what `CURRENT` names must be there.
        Err(_) if current(folder)? == Some(version) => {}
        Err(_) => fs::rename(&path, &next).map_err(PlotError::io(&path))?,
    }
    committed
}

fn remove_other_versions(folder: &Path, kept: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_version = name.to_str().is_some_and(|name| name.starts_with('v') && name != kept);
        if is_version {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

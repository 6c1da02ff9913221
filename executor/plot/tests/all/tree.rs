//! Domains created, updated and deleted while others look up.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Layers, build, corpus};
use tenantry_plot::{Batch, DomainId, Engine, Node, PlotError, Select, Shape, Snapshot, Tier, Tiers, Tree};

const MEMORY: Tier = Tier::Memory { locked: false };
const TIERS: Tiers = Tiers {
    root: Tier::Disk,
    domains: MEMORY,
};
const BIOLOGY: Node = Node::Domain("biology");

fn shape() -> Shape {
    Shape::trigrams(16)
}

/// Builds a node's next version, all trigrams of one corpus by the layers of `seed`.
fn stage(folder: &Path, node: Node, seed: u64) {
    let path = Tree::stage(folder, node).unwrap().join("3.plot");
    build(&path, shape(), Select::All, &corpus(6, 30, 20, 1), seed).unwrap();
}

/// The layers whose rows a look-up in this domain gives.
fn seed_of(snapshot: &Snapshot, domain: Option<DomainId>) -> u64 {
    let text = &corpus(6, 30, 20, 1)[0][..3];
    let batch = Batch {
        tokens: text,
        width: 3,
        lengths: &[3],
        domains: &[domain],
    };
    let mut out = vec![0.0f32; 48];
    Engine::new(1).unwrap().retrieve(snapshot, &batch, &mut out).unwrap();
    (0..100).find(|&seed| Layers::new(shape(), seed).row(text) == out).expect("rows of one version")
}

/// What another process has published is found by reading a node anew; what has become unreadable leaves the old
/// version in use.
#[test]
fn a_node_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stage(folder, Node::Root, 10);
    let publishes = Tree::found(folder, TIERS).unwrap();
    let looks_up = Tree::open(folder, TIERS).unwrap();
    assert!(looks_up.reload(BIOLOGY).is_err(), "nobody has created it");

    stage(folder, BIOLOGY, 20);
    publishes.publish(BIOLOGY).unwrap();
    assert_eq!(looks_up.snapshot().domain("biology"), None, "not before it is read");
    looks_up.reload(BIOLOGY).unwrap();
    let first = looks_up.snapshot();
    let biology = first.domain("biology").unwrap();
    stage(folder, BIOLOGY, 21);
    publishes.publish(BIOLOGY).unwrap();
    looks_up.reload(BIOLOGY).unwrap();
    let second = looks_up.snapshot();
    assert_eq!([&first, &second].map(|held| seed_of(held, Some(biology))), [20, 21]);

    let table = folder.join("domains/biology/v2/3.plot");
    let file = fs::File::options().write(true).open(&table).unwrap();
    file.set_len(fs::metadata(&table).unwrap().len() - 1).unwrap();
    let error = looks_up.reload(BIOLOGY).unwrap_err().to_string();
    assert!(error.contains("3.plot"), "{error}");
    assert_eq!(seed_of(&looks_up.snapshot(), Some(biology)), 21, "from memory");
}

#[test]
fn domains_live() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(Tree::open(folder, TIERS).is_err(), "no root yet");
    stage(folder, Node::Root, 10);
    let tree = Tree::found(folder, TIERS).unwrap();
    assert_eq!(tree.snapshot().domain("biology"), None);
    assert!(tree.publish(BIOLOGY).is_err(), "nothing is built");

    stage(folder, BIOLOGY, 20);
    tree.publish(BIOLOGY).unwrap();
    let first = tree.snapshot();
    let biology = first.domain("biology").unwrap();
    assert_eq!((seed_of(&first, None), seed_of(&first, Some(biology))), (10, 20));

    // An update: whoever holds the old version keeps it.
    stage(folder, BIOLOGY, 21);
    assert_eq!(seed_of(&tree.snapshot(), Some(biology)), 20, "staged is not published");
    tree.publish(BIOLOGY).unwrap();
    let second = tree.snapshot();
    assert_eq!(
        (seed_of(&first, Some(biology)), seed_of(&second, Some(biology))),
        (20, 21)
    );
    assert_eq!(
        (
            first.branch(biology).unwrap().version(),
            second.branch(biology).unwrap().version()
        ),
        (1, 2)
    );
    assert_eq!(
        second.domain("biology"),
        Some(biology),
        "the identity outlives the update"
    );

    stage(folder, Node::Root, 11);
    tree.publish(Node::Root).unwrap();
    assert_eq!(
        (seed_of(&second, None), seed_of(&tree.snapshot(), None)),
        (10, 11),
        "on disk, and unlinked"
    );

    // As another process finds it.
    let reopened = Tree::open(folder, TIERS).unwrap().snapshot();
    assert_eq!(
        (seed_of(&reopened, None), seed_of(&reopened, reopened.domain("biology"))),
        (11, 21)
    );
    assert_eq!(reopened.domains().collect::<Vec<_>>(), ["biology"]);

    tree.delete("biology").unwrap();
    let last = tree.snapshot();
    assert_eq!(last.domain("biology"), None);
    assert_eq!(seed_of(&second, Some(biology)), 21, "in flight");
    let refused = last.branch(biology).err().unwrap().to_string();
    assert!(refused.contains("deleted"), "{refused}");
    assert!(tree.delete("biology").is_err());
    assert!(!folder.join("domains/biology").exists());

    // Created again, it is another: no one's old identity leads to it.
    stage(folder, BIOLOGY, 22);
    tree.publish(BIOLOGY).unwrap();
    assert_ne!(tree.snapshot().domain("biology"), Some(biology));
}

#[test]
fn what_does_not_fit_the_tree_is_not_published() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stage(folder, Node::Root, 10);
    let tree = Tree::found(folder, TIERS).unwrap();
    stage(folder, BIOLOGY, 20);
    tree.publish(BIOLOGY).unwrap();
    let biology = tree.snapshot().domain("biology");

    let next = Tree::stage(folder, BIOLOGY).unwrap().join("3.plot");
    let wide = Shape::trigrams(17);
    build(&next, wide, Select::All, &corpus(6, 30, 20, 1), 20).unwrap();
    let refused = tree.publish(BIOLOGY).unwrap_err().to_string();
    assert!(refused.contains("hidden: must be 16, got 17"), "{refused}");

    stage(folder, BIOLOGY, 23);
    let length = fs::metadata(&next).unwrap().len();
    fs::File::options().write(true).open(&next).unwrap().set_len(length - 1).unwrap();
    assert!(matches!(tree.publish(BIOLOGY), Err(PlotError::Truncated { .. })));

    stage(folder, BIOLOGY, 24);
    fs::create_dir(next.with_extension("plot.building")).unwrap();
    let refused = tree.publish(BIOLOGY).unwrap_err().to_string();
    assert!(refused.contains("interrupted build"), "{refused}");
    fs::remove_dir(next.with_extension("plot.building")).unwrap();

    for snapshot in [tree.snapshot(), Tree::open(folder, TIERS).unwrap().snapshot()] {
        assert_eq!(seed_of(&snapshot, biology), 20, "the old version stays");
    }
    // A version left by a process that was killed before it was named is neither used nor in the way.
    fs::rename(folder.join("domains/biology/next"), folder.join("domains/biology/v2")).unwrap();
    assert_eq!(seed_of(&Tree::open(folder, TIERS).unwrap().snapshot(), biology), 20);
    stage(folder, BIOLOGY, 25);
    tree.publish(BIOLOGY).unwrap();
    assert_eq!(seed_of(&tree.snapshot(), biology), 25);
    let snapshot = tree.snapshot();
    let branch = snapshot.branch(biology.unwrap()).unwrap();
    assert!(
        branch.tables().iter().all(|table| table.path().exists()),
        "they are named by their version's folder"
    );
    assert!(!folder.join("domains/biology/v2").exists() && !folder.join("domains/biology/v1").exists());

    for name in ["", "../root", "Biology", "a/b"] {
        assert!(Tree::stage(folder, Node::Domain(name)).is_err(), "`{name}`");
    }
}

/// Readers see one version or the next, never a mixture, and no error.
#[test]
fn updates_under_readers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stage(folder, Node::Root, 10);
    let tree = Tree::found(folder, TIERS).unwrap();
    stage(folder, BIOLOGY, 20);
    tree.publish(BIOLOGY).unwrap();
    let domain = tree.snapshot().domain("biology");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 20;
                    while !stop.load(Ordering::Relaxed) {
                        let seed = seed_of(&tree.snapshot(), domain);
                        assert!(seed >= last, "{seed} after {last}");
                        last = seed;
                    }
                })
            })
            .collect();
        for seed in 21..40 {
            stage(folder, BIOLOGY, seed);
            tree.publish(BIOLOGY).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(seed_of(&tree.snapshot(), domain), 39);
}

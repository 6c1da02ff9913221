//! What is foretold of look-ups is what they meet.

use std::path::Path;

use crate::common::build;
use tenantry_plot::{
    Batch, Context, Counters, Engine, Forecast, KeySets, Language, Node, Select, Shape, Text, Texts, Tier, Tiers, Tree,
};

const VOCABULARY: u32 = 900;
const REQUESTS: u64 = 120;
const HIDDEN: u32 = 4;

fn made_up() -> Texts {
    Texts::Made(Language::new(5, VOCABULARY).with_corpus(12))
}

/// Tables of a language's corpus, as a pool's are built.
fn tree(folder: &Path, shape: Shape, root: Select, domains: Option<Select>) -> Tree {
    let tiers = Tiers {
        root: Tier::Disk,
        domains: Tier::Memory { locked: false },
    };
    let texts = made_up();
    let stage = |node: Node<'_>, tokens: u32, select: Select, corpus: Vec<Vec<u32>>| {
        let path = Tree::stage(folder, node).unwrap().join(format!("{tokens}.plot"));
        build(&path, shape.with_fragment_tokens(tokens), select, &corpus, 1).unwrap();
    };
    for tokens in 1..=shape.fragment_tokens {
        let select = if tokens == shape.fragment_tokens {
            root
        } else {
            Select::All
        };
        stage(Node::Root, tokens, select, texts.whole_corpus(shape.context).collect());
    }
    let tree = Tree::found(folder, tiers).unwrap();
    for (domain, select) in texts.domains().zip(domains.into_iter().cycle()) {
        let name = format!("domain-{domain}");
        let node = Node::Domain(&name);
        stage(node, shape.fragment_tokens, select, texts.corpus(domain).collect());
        tree.publish(node).unwrap();
    }
    tree
}

fn meet(tree: &Tree, context: Context, tokens: &[u32], domain: u32) -> Counters {
    let snapshot = tree.snapshot();
    let domain = snapshot.domain(&format!("domain-{domain}"));
    let mut out = vec![0.0f32; tokens.len() * HIDDEN as usize];
    let engine = Engine::new(1).unwrap();
    match context {
        Context::Both => {
            let batch = Batch {
                tokens,
                width: tokens.len(),
                lengths: &[tokens.len() as u32],
                domains: &[domain],
            };
            engine.retrieve(&snapshot, &batch, &mut out).unwrap()
        }
        Context::Preceding => {
            let text = Text {
                tokens,
                first: 0,
                domain,
            };
            engine.retrieve_ends(&snapshot, &[text], &mut out).unwrap()
        }
    }
}

/// Keys that other forecasts counted, of the same tables and of others, change nothing.
#[test]
fn forecasts_are_what_tables_give() {
    let kept = KeySets::default();
    for context in [Context::Both, Context::Preceding] {
        for (fragment_tokens, root, domains) in [
            (3, Select::of_root(0), Select::of_domain(500_000)),
            (3, Select::of_root(200_000), Select::of_domain(300_000)),
            (2, Select::of_root(100_000), Select::of_domain(0)),
            (1, Select::of_root(0), Select::of_domain(400_000)),
        ] {
            let shape = Shape {
                fragment_tokens,
                context,
                hidden: HIDDEN,
            };
            let folder = tempfile::tempdir().unwrap();
            let tree = tree(folder.path(), shape, root, domains);
            let texts = made_up();
            let forecast = Forecast::new(&texts, fragment_tokens, context, root, domains, &kept).unwrap();
            let mut all = Counters::default();
            for ticket in 0..REQUESTS {
                let (tenant, length) = (ticket as u32 % 21, 1 + (ticket as usize * 7) % 50);
                let mut text = vec![0; length];
                texts.write(ticket, tenant, &mut text);
                let domain = texts.domain_of(tenant);
                let (foretold, met) = (forecast.meet(&text, domain), meet(&tree, context, &text, domain));
                let of = |counters: Counters| Counters {
                    misses: 0,
                    cold_rows: 0,
                    ..counters
                };
                assert_eq!(of(foretold), of(met), "{context:?}, {fragment_tokens}: {length} tokens");
                all = all + foretold;
            }
            assert!(all.root_hits > 0, "{all:?}");
            assert_eq!(all.domain_hits > 0, domains.is_some(), "{all:?}");
            assert_eq!(all.fallbacks > 0, fragment_tokens > 1, "{all:?}");
        }
    }
}

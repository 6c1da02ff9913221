//! What a round of a recording had, so that the next rounds need not read it again.

/// A round of more than this is read again each time: 8 MiB of arrivals.
const MOST_KEPT: usize = 1 << 18;

/// What a round has, gathered while it goes by for the first time and then given again and again.
pub struct Kept<T> {
    items: Vec<T>,
    /// Whether there was more than is kept.
    is_cut: bool,
    /// The next one of the current round; `None` in the first, and where not all is kept.
    next: Option<usize>,
}

impl<T: Copy> Kept<T> {
    pub fn new() -> Kept<T> {
        Kept {
            items: Vec::new(),
            is_cut: false,
            next: None,
        }
    }

    /// Whether rounds are given from here.
    pub fn is_given(&self) -> bool {
        self.next.is_some()
    }

    /// Takes what the first round has next.
    pub fn keep(&mut self, item: T) {
        if self.is_cut || self.items.len() == MOST_KEPT {
            self.is_cut = true;
            self.items = Vec::new();
        } else {
            self.items.push(item);
        }
    }

    /// What the current round has next, where it is given from here.
    pub fn next(&mut self) -> Option<T> {
        let next = self.next.as_mut()?;
        let item = self.items.get(*next).copied();
        *next += 1;
        item
    }

    /// Begins the next round. False where it is to be read again.
    pub fn start_again(&mut self) -> bool {
        self.next = (!self.is_cut).then_some(0);
        self.is_given()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_given_again_and_too_much_is_not_kept() {
        let mut kept = Kept::new();
        (0..3).for_each(|item| kept.keep(item));
        for _ in 0..2 {
            assert!(kept.start_again());
            assert_eq!(std::iter::from_fn(|| kept.next()).collect::<Vec<_>>(), [0, 1, 2]);
        }
        let mut many = Kept::new();
        (0..=MOST_KEPT).for_each(|item| many.keep(item));
        assert!(!many.start_again() && many.items.is_empty());
    }
}

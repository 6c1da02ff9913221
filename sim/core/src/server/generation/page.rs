//! How large a page of the key-value cache is.

/// Tokens of a page. A dozen divisions by them lie on a request's way; a size that is known only when a server is built
/// is divided by as a multiplication with its reciprocal, which takes a processor a quarter of the cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize {
    tokens: u32,
    /// (2^64 - 1) / `tokens`, rounded down.
    reciprocal: u64,
}

impl PageSize {
    /// Pages of so many tokens, at least one.
    pub fn new(tokens: u32) -> PageSize {
        PageSize {
            tokens,
            reciprocal: u64::MAX / u64::from(tokens),
        }
    }

    pub fn tokens(self) -> u32 {
        self.tokens
    }

    /// Pages that so many tokens fill: exact for all, by A. D. Robison, "N-bit unsigned division via N-bit
    /// multiply-add" (ARITH-17, 2005), with 32 bits to spare.
    #[inline]
    pub fn filled_by(self, tokens: u32) -> u32 {
        (((u128::from(tokens) + 1) * u128::from(self.reciprocal)) >> 64) as u32
    }

    /// Pages that so many tokens take.
    #[inline]
    pub fn taken_by(self, tokens: u32) -> u32 {
        match tokens {
            0 => 0,
            tokens => self.filled_by(tokens - 1) + 1,
        }
    }

    /// Tokens on the page that so many tokens do not fill.
    #[inline]
    pub fn over(self, tokens: u32) -> u32 {
        tokens - self.filled_by(tokens) * self.tokens
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_division(
            page in prop_oneof![1..300_u32, any::<u32>().prop_map(|page| page.max(1))],
            tokens in prop_oneof![any::<u32>(), 0..9_000_u32, (0..9_u32).prop_map(|less| u32::MAX - less)],
            pages in any::<u32>(),
            off in 0..3_u32,
        ) {
            let size = PageSize::new(page);
            // Also where a page begins, which is where rounding would show.
            let at_edge = (pages % (u32::MAX / page).max(1) * page).saturating_sub(1).saturating_add(off);
            for tokens in [tokens, at_edge] {
                prop_assert_eq!(size.filled_by(tokens), tokens / page);
                prop_assert_eq!(size.taken_by(tokens), tokens.div_ceil(page));
                prop_assert_eq!(size.over(tokens), tokens % page);
            }
        }
    }
}

//! Why a request was granted, and what a waiting one waits for.

/// The numbers that decided one grant, from the root of the tree down.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Why {}

impl crate::pool::Pool {
    pub(crate) fn why(&mut self, _slot: crate::requests::Slot) -> Why {
        Why::default()
    }
}

//! Flows that always have requests waiting.

use super::scene::Scene;

/// Members that each keep a number of requests waiting. Whenever a request is granted, its member
/// sends another.
pub(crate) struct Crowd {
    pub(crate) scene: Scene,
    members: Vec<Member>,
    sent: u64,
}

/// A sender of requests, with the tokens that its requests cost and really use.
pub(crate) struct Member {
    pub(crate) letter: char,
    pub(crate) who: String,
    pub(crate) cost: u64,
    pub(crate) used: u64,
    /// Number of the member's requests that have ended.
    pub(crate) ended: u64,
    /// Number of tokens that the member's ended requests used.
    pub(crate) served: u64,
}

impl Crowd {
    pub(crate) fn new(scene: Scene) -> Self {
        Self { scene, members: Vec::new(), sent: 0 }
    }

    /// Adds a member that keeps this many requests waiting. Its requests cost what they use.
    pub(crate) fn join(&mut self, letter: char, who: &str, waiting: u64, cost: u64) {
        self.join_using(letter, who, waiting, cost, cost);
    }

    /// Adds a member whose requests cost `cost` tokens and really use `used` tokens.
    pub(crate) fn join_using(
        &mut self,
        letter: char,
        who: &str,
        waiting: u64,
        cost: u64,
        used: u64,
    ) {
        let who = who.to_string();
        self.members.push(Member { letter, who, cost, used, ended: 0, served: 0 });
        for _ in 0..waiting {
            let from = self.scene.granted().len();
            self.send(self.members.len() - 1);
            self.replace_granted(from);
        }
    }

    /// Ends this many requests, in the order of their grants. Returns the letters of the requests
    /// that were granted as a result.
    pub(crate) fn run(&mut self, ends: usize) -> String {
        let from = self.scene.granted().len();
        for _ in 0..ends {
            self.end_oldest();
        }
        self.scene.order_from(from)
    }

    /// Ends requests until a request that no member sent is granted. Returns the number of ended
    /// requests, at most `most`.
    pub(crate) fn run_until_granted(&mut self, id: &str, most: usize) -> usize {
        for ends in 1..=most {
            let oldest = self.scene.in_flight()[0].to_string();
            if self.scene.release(&oldest) == id {
                return ends;
            }
            let from = self.scene.granted().len() - 1;
            self.replace_granted(from);
        }
        panic!("{id} is not granted after {most} ends");
    }

    /// Ends the request in flight that was granted first. The members replace the requests that are
    /// granted as a result.
    pub(crate) fn end_oldest(&mut self) {
        let id = self.scene.in_flight()[0].to_string();
        let from = self.scene.granted().len();
        let index = self.member_of(&id);
        let used = self.members[index].used;
        self.members[index].ended += 1;
        self.members[index].served += used;
        self.scene.release_using(&id, used);
        self.replace_granted(from);
    }

    /// Applies an event to the scene. The members replace the requests that are granted as a
    /// result.
    pub(crate) fn happen(&mut self, event: impl FnOnce(&mut Scene)) {
        let from = self.scene.granted().len();
        event(&mut self.scene);
        self.replace_granted(from);
    }

    /// Returns the number of tokens that a member's ended requests have used.
    pub(crate) fn served(&self, letter: char) -> u64 {
        self.members.iter().filter(|m| m.letter == letter).map(|m| m.served).sum()
    }

    fn send(&mut self, index: usize) {
        self.sent += 1;
        let Member { letter, who, cost, .. } = &self.members[index];
        let id = format!("{letter}-{index}-{}", self.sent);
        self.scene.ask(&id, who, *cost);
    }

    fn member_of(&self, id: &str) -> usize {
        let index = id.split('-').nth(1).expect("an id of a member");
        index.parse().expect("a member's number")
    }

    fn replace_granted(&mut self, mut from: usize) {
        while let Some(id) = self.scene.granted().get(from) {
            let index = self.member_of(id);
            self.send(index);
            from += 1;
        }
    }
}

//! The requests of this process's callers.

use std::time::Duration;

use fairgate_replica::RequestRefusal;

use super::MemberTask;
use crate::member_message::{ClusterAdmitError, MemberCommand, RequestName, SubmitCommand};

impl MemberTask {
    pub(super) fn take_command(&mut self, command: MemberCommand) {
        match command {
            MemberCommand::Submit(submit) => self.submit(*submit),
            MemberCommand::Abandon(name) => self.abandon(&name),
            MemberCommand::FirstToken((pool, id)) => self.protocol.first_token(&pool, &id),
            MemberCommand::Release(name, end) => {
                self.flights.remove(&name);
                self.protocol.release(&name.0, &name.1, end);
            }
            MemberCommand::Publish(line, reply) => {
                let _ = reply.send(self.protocol.publish(&line));
            }
            MemberCommand::Opinion { pool, worker, up, wait } => {
                self.protocol.set_opinion(&pool, &worker, up, wait);
            }
            MemberCommand::Directory(version) => self.protocol.set_directory(version),
            MemberCommand::Reload(config, reply) => {
                let _ = reply.send(self.protocol.reload(*config));
            }
            MemberCommand::View(view) => view(&self.protocol),
            MemberCommand::Leave => self.protocol.leave(),
        }
    }

    fn submit(&mut self, command: SubmitCommand) {
        let SubmitCommand { pool, submit, fields, reply, turn } = command;
        drop(turn);
        if reply.is_closed() {
            return;
        }
        let name: RequestName = (pool, submit.id.clone());
        let now = self.clock.now();
        let silent = Duration::from_micros(self.protocol.silent_for(now).0);
        let is_in = self.protocol.epoch().is_some() || self.generation.is_ending();
        let refusal = if is_in && silent > self.patience {
            Some(ClusterAdmitError::LogStalled)
        } else if self.waiting.len() >= self.waiting_max {
            Some(ClusterAdmitError::TooManyWaiting { max: self.waiting_max })
        } else if self.waiting.contains_key(&name) || self.flights.contains_key(&name) {
            Some(ClusterAdmitError::DuplicateId)
        } else {
            let submitted = self.protocol.submit(&name.0, submit, fields, now);
            submitted.err().map(ClusterAdmitError::from)
        };
        match refusal {
            Some(refusal) => drop(reply.send(Err(refusal))),
            None => drop(self.waiting.insert(name, reply)),
        }
    }

    fn abandon(&mut self, name: &RequestName) {
        self.waiting.remove(name);
        self.flights.remove(name);
        self.protocol.abandon(&name.0, &name.1);
    }

    pub(super) fn refused(&mut self, name: RequestName, reason: RequestRefusal) {
        if let Some(reply) = self.waiting.remove(&name) {
            // The caller may have left.
            let _ = reply.send(Err(reason.into()));
        }
    }

    /// Gives back the slots of requests whose callers have left, with 0 tokens.
    pub(super) fn give_back_unclaimed(&mut self) {
        while let Some((pool, id)) = self.unclaimed.pop() {
            self.protocol.abandon(&pool, &id);
        }
    }
}

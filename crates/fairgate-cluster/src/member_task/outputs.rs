//! Carries out the outputs of the protocol.

use std::sync::Arc;

use fairgate_core::decision::Grant;
use fairgate_replica::{JoinRefusal, LogLine, MemberOutput};
use tokio::sync::oneshot;

use super::row_calls::RowCall;
use super::{MemberTask, PeerReport};
use crate::member_message::GrantedSlot;
use crate::member_status::MemberStanding;

impl MemberTask {
    pub(super) fn take_output(&mut self, output: MemberOutput) {
        match output {
            MemberOutput::Granted { pool, grant } => self.granted(&pool, grant),
            MemberOutput::Refused { pool, id, reason } => self.refused((pool, id), reason),
            MemberOutput::CutFlight { pool, id } => {
                if let Some(cut) = self.flights.remove(&(pool, id)) {
                    let _ = cut.send(());
                }
            }
            MemberOutput::Joined { epoch } => {
                self.join_problem = None;
                tracing::info!(epoch = epoch.0, "this gateway is a member of its cluster");
                for line in self.observer.epoch_lines() {
                    self.publish(&line);
                }
            }
            MemberOutput::JoinRefused(reason) => self.join_refused(reason),
            MemberOutput::EpochEnded => tracing::warn!(
                "the cluster went on without this gateway, because it did not hear of it for a lease; it joins again"
            ),
            MemberOutput::Left => self.end = Some(MemberStanding::Left),
            MemberOutput::StoreSnapshot { position, bytes } => self.store_snapshot(position, bytes),
            MemberOutput::Prune { up_to } => {
                let generation = self.protocol.replica().machine().generation();
                self.call_rows(RowCall::Prune { generation, up_to });
            }
            MemberOutput::ReadAgain { position } => {
                tracing::warn!(position = position.0, "a record of the log is damaged; it is read again");
                self.move_cursor(true);
            }
            MemberOutput::RestartFromSnapshot => {
                tracing::error!("a record of the log is still damaged; this member begins from the last snapshot");
                self.load_snapshot(None);
            }
            MemberOutput::GenerationNeeded { report, reason } => {
                self.begin_to_end(report, &reason);
            }
            MemberOutput::UnknownVersion { needed } => self.fail(format!(
                "the cluster runs version {needed} of the rules, which this program does not know: start a newer release"
            )),
            MemberOutput::AskPeers => self.ask_peers(),
            MemberOutput::Decided(decision) => self.observer.decided(&decision),
        }
    }

    fn join_refused(&mut self, reason: JoinRefusal) {
        match reason {
            JoinRefusal::NameTaken => {
                let problem = "another process of this member's name is in the cluster, or ended less than a \
                               lease ago";
                self.join_problem = Some(problem.to_owned());
            }
            JoinRefusal::TooManyMembers => {
                self.join_problem = Some("the cluster has no room for another member".to_owned());
            }
            JoinRefusal::UnknownVersion { in_force } => self.fail(format!(
                "the cluster runs version {in_force} of the rules, which this program does not know: start a release \
                 that knows it"
            )),
            JoinRefusal::BadName => self.fail(
                "the cluster refuses this member's name or address: both must be short and without control \
                 characters, quotes and backslashes"
                    .to_owned(),
            ),
        }
    }

    /// Asks the other members in a task of its own.
    fn ask_peers(&mut self) {
        let machine = self.protocol.replica().machine();
        let others = machine.members().filter(|it| it.is_live() && it.process != self.process);
        let addresses: Vec<Arc<str>> = others.map(|it| it.address.clone()).collect();
        let asked = addresses.len();
        let Some(peers) = self.peers.clone().filter(|_| asked > 0) else {
            return self.protocol.peers_answered(&[], asked);
        };
        let answers = self.lanes.peer_answers.clone();
        tokio::spawn(async move {
            let times = peers.ask(addresses).await;
            // The member's task may have ended.
            let _ = answers.send(PeerReport { times, asked }).await;
        });
    }

    fn publish(&mut self, line: &LogLine) {
        if let Err(error) = self.protocol.publish(line) {
            tracing::error!("a line is not sent to the cluster: {error}");
        }
    }

    fn granted(&mut self, pool: &Arc<str>, grant: Grant) {
        let name = (pool.clone(), grant.id.clone());
        let Some(reply) = self.waiting.remove(&name) else {
            return self.unclaimed.push(name);
        };
        let (cut, cut_end) = oneshot::channel();
        let granted = GrantedSlot { grant, cut: cut_end };
        match reply.send(Ok(granted)) {
            Ok(()) => drop(self.flights.insert(name, cut)),
            Err(_) => self.unclaimed.push(name),
        }
    }
}

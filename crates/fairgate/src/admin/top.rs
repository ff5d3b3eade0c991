//! The command `fairgate top`: pools, flows, requests, workers and the fleet on one screen, with keys to hold, weigh, cap,
//! drain and explain.
//!
//! One thread calls the gateway (`gateway_calls.rs`), so that the screen reacts to keys at once.
//! The model (`model.rs`) holds the data to show. Keys change the model or request a call
//! (`keys.rs`). The screen draws the model line by line (`screen.rs`). Everything except this file
//! can be tested without a terminal.

mod flow_rows;
mod gateway_calls;
mod keys;
mod model;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::widgets::Paragraph;

use self::gateway_calls::{GatewayCall, GatewayReply, call};
use self::keys::{TopEffect, press};
use self::model::TopModel;
use super::client::{AdminClient, GatewayArgs};
use crate::output::StdoutWriter;

/// Longest time after which the screen notices a reply of the gateway.
const REPLY_DELAY: Duration = Duration::from_millis(100);
/// Size of the frame that --once prints if standard output is no terminal, in characters.
const FRAME: (u16, u16) = (80, 24);

/// Watch pools, flows, requests, workers and the fleet on one screen, and change them.
///
/// The keys 1 to 4 choose what is shown, and ? lists all keys. Everything that changes something asks first; changes are
/// in the audit trail under your user name.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Show this pool first. Default: the first one.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    every: u64,
    /// Print one frame, as text, and exit.
    #[arg(long)]
    once: bool,
}

impl TopArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = AdminClient::new(&self.gateway)?;
        let mut model = TopModel::new(self.pool.clone(), self.every);
        if self.once {
            return print_frame(&client, &mut model);
        }
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            bail!(
                "this is not a terminal: `fairgate live` prints the flows, and `fairgate top --once` one frame"
            );
        }
        // An error of the first look is an error of the command, such as a wrong token.
        model.take(call(&client, GatewayCall::Look(model.tab)));
        if let Some(error) = &model.error {
            bail!("{error}");
        }
        let mut terminal = ratatui::try_init().context("the terminal")?;
        let watched = watch(&mut terminal, client, model);
        ratatui::restore();
        watched
    }
}

fn print_frame(client: &AdminClient, model: &mut TopModel) -> Result<()> {
    model.take(call(client, GatewayCall::Look(model.tab)));
    if let Some(error) = &model.error {
        bail!("{error}");
    }
    let size = terminal_size::terminal_size_of(io::stdout());
    let (width, height) = size.map_or(FRAME, |(width, height)| (width.0, height.0));
    let mut out = StdoutWriter::stdout();
    for line in screen::lines(model, width, height) {
        let text: String = line.spans.iter().map(|span| &*span.content).collect();
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(out.flush()?)
}

/// Shows the screen until the user quits.
fn watch(terminal: &mut DefaultTerminal, client: AdminClient, mut model: TopModel) -> Result<()> {
    let (calls, replies) = start_caller(client);
    let every = Duration::from_secs(model.every);
    let mut looked = Instant::now();
    let mut waits = false;
    loop {
        terminal.draw(|frame| {
            let area = frame.area();
            let lines = screen::lines(&model, area.width, area.height);
            frame.render_widget(Paragraph::new(lines), area);
        })?;
        if event::poll(REPLY_DELAY)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match press(&mut model, key) {
                TopEffect::None => {}
                TopEffect::Quit => return Ok(()),
                TopEffect::Look => looked = Instant::now() - every,
                TopEffect::Call(asked) => {
                    calls.send(asked).context("the gateway's caller ended")?
                }
            }
        }
        while let Ok(reply) = replies.try_recv() {
            match reply {
                GatewayReply::Looked(_) => waits = false,
                // What was changed is shown at once.
                GatewayReply::Changed(_) => looked = Instant::now() - every,
                GatewayReply::Explained(..) => {}
            }
            model.take(reply);
        }
        if !waits && !model.paused && looked.elapsed() >= every {
            calls.send(GatewayCall::Look(model.tab)).context("the gateway's caller ended")?;
            (looked, waits) = (Instant::now(), true);
        }
    }
}

/// Starts the thread that asks the gateway, one call after the other.
fn start_caller(client: AdminClient) -> (Sender<GatewayCall>, Receiver<GatewayReply>) {
    let (calls, asked) = channel();
    let (answer, replies) = channel();
    thread::spawn(move || {
        for one in asked {
            if answer.send(call(&client, one)).is_err() {
                break;
            }
        }
    });
    (calls, replies)
}

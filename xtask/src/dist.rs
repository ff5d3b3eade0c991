//! `cargo xtask dist`: everything that is published, in `target/dist/packages`; and `cargo xtask site`.
//!
//! Two builds of one commit give the same bytes. For that, times come from the commit (`SOURCE_DATE_EPOCH`), paths of this
//! machine are replaced in the programs, and archives are written in the order of their names with one owner.
//! `dist --verify` builds a commit twice, from two copies in different folders, and compares. `dist --sign` signs what was
//! built elsewhere, so that the key need not be on the machine that builds.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{CargoTool, need_tool, tools_folder, work_folder};
use crate::python::{target, venv, wheel_steps};
use crate::step::XtaskStep;
use crate::{FEATURES_OF_PACKAGES, PROFILE_OF_PACKAGES, XtaskError, cargo, tools};

/// The program that makes the Debian package.
pub(crate) const CARGO_DEB: CargoTool =
    CargoTool { name: "cargo-deb", version: "3.8.0", options: &[] };
/// The program that makes the site. Its server and its watcher are left out: they take most of the time of its build.
pub(crate) const MDBOOK: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
    options: &["--no-default-features", "--features", "search"],
};

/// Programs that are published, and verified if none is named.
const PROGRAMS: [&str; 2] = ["fairgate", "fairgate-sim"];

/// Variable with the path of minisign's secret key.
const SIGNING_KEY: &str = "FAIRGATE_SIGNING_KEY_FILE";

/// Returns the steps of `cargo xtask dist` with these arguments.
pub(crate) fn steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    match args {
        [] => {
            refuse_changes(&git(root, &["status", "--porcelain"])?)?;
            dist_steps(root, &Release::of(root)?)
        }
        ["--verify", programs @ ..] => verify_steps(root, programs),
        ["--sign", folder] => {
            let mut steps = tools::need_debian("minisign", "minisign");
            steps.push(signature_step(&signing_key()?, Path::new(folder)));
            Ok(steps)
        }
        other => {
            let other = other.join(" ");
            Err(XtaskError(format!(
                "no such options of dist: `{other}`; there are `--verify [PROGRAM…]` and `--sign FOLDER`"
            )))
        }
    }
}

/// The commit that is published.
#[derive(Debug, PartialEq)]
struct Release {
    /// Name of the version in files: that of the commit's tag, else `0.1.0+COMMIT`.
    version: String,
    /// Time of the commit, in seconds since 1970.
    epoch: String,
    /// Day of the commit, such as `2026-11-18`.
    date: String,
}

impl Release {
    fn of(root: &Path) -> Result<Self, XtaskError> {
        let tag = git(root, &["tag", "--points-at", "HEAD", "--list", "v[0-9]*"])?;
        let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
        let shown = git(root, &["log", "-1", "--format=%ct %cs"])?;
        let (epoch, date) = shown
            .split_once(' ')
            .ok_or_else(|| XtaskError(format!("git shows no time of the commit: {shown}")))?;
        let version = version(&tag, env!("CARGO_PKG_VERSION"), &commit);
        Ok(Self { version, epoch: epoch.to_owned(), date: date.to_owned() })
    }
}

/// Returns the version that a tag such as `v0.1.0` names; without a tag, the package's version and the commit.
fn version(tags: &str, package: &str, commit: &str) -> String {
    match tags.lines().next().and_then(|tag| tag.strip_prefix('v')) {
        Some(tag) => tag.to_owned(),
        None => format!("{package}+{commit}"),
    }
}

fn refuse_changes(status: &str) -> Result<(), XtaskError> {
    if status.is_empty() {
        return Ok(());
    }
    let some: Vec<&str> = status.lines().take(5).collect();
    Err(XtaskError(format!(
        "the tree has changes, so what is built would be no commit; commit or stash them first:\n{}",
        some.join("\n")
    )))
}

fn git(root: &Path, args: &[&str]) -> Result<String, XtaskError> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output();
    let output = output.map_err(|error| XtaskError(format!("git does not start: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(XtaskError(format!("git {}: {}", args.join(" "), said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the folder of what is published.
fn output_folder(root: &Path) -> PathBuf {
    root.join("target/dist/packages")
}

fn dist_steps(root: &Path, release: &Release) -> Result<Vec<XtaskStep>, XtaskError> {
    let (out, stage) = (output_folder(root), work_folder(root).join("stage"));
    let (out, stage) = (out.to_string_lossy(), stage.to_string_lossy());
    let built = target(root).join("dist-build");
    let programs = built.join(PROFILE_OF_PACKAGES).to_string_lossy().into_owned();
    let debian = [
        ("buildah", "buildah"),
        ("strip", "binutils"),
        ("minisign", "minisign"),
        // jemalloc is built with it.
        ("make", "make"),
    ];
    let mut steps = tools::need_all_debian(&debian);
    steps.extend(need_tool(root, &CARGO_DEB));
    steps.push(reproducible_build(root, &built, &PROGRAMS, release));
    let shell = |name: &str, script: &str, args: &[&str]| {
        let words = [&["-euc", script, "sh"], args].concat();
        XtaskStep::new(name, "sh", &words).env("SOURCE_DATE_EPOCH", &release.epoch)
    };
    let Release { version, epoch, date } = release;
    steps.push(shell("empty folder", "rm -rf \"$1\" && mkdir -p \"$1\"", &[&out]));
    let stage_step = XtaskStep::new("stage", "packaging/stage.sh", &[&programs, &stage, date]);
    steps.push(stage_step.env("FAIRGATE_VERSION", version));
    steps.push(shell("archive", ARCHIVE, &[&stage, &out, version, epoch]));
    steps.push(debian_package(root, &format!("{out}/"), version).env("SOURCE_DATE_EPOCH", epoch));
    steps.push(shell("images", IMAGES, &[&stage, &out, version, epoch]));
    steps.push(shell("chart", CHART, &["packaging/chart/fairgate", &out, version, epoch]));
    steps.extend(wheel_steps(root)?.into_iter().map(|step| step.env("SOURCE_DATE_EPOCH", epoch)));
    let wheels = target(root).join("wheels").to_string_lossy().into_owned();
    steps.push(shell("copy wheel", "cp \"$1\"/*.whl \"$2\"", &[&wheels, &out]));
    steps.push(shell("licences", LICENCES, &[&out]));
    steps.push(shell(
        "checksums",
        "cd \"$1\" && sha256sum -- * > ../SHA256SUMS && mv ../SHA256SUMS .",
        &[&out],
    ));
    if let Some(key) = env::var_os(SIGNING_KEY) {
        steps.push(signature_step(Path::new(&key), Path::new(&*out)));
    }
    Ok(steps)
}

fn signing_key() -> Result<PathBuf, XtaskError> {
    let key = env::var_os(SIGNING_KEY).map(PathBuf::from);
    key.ok_or_else(|| {
        XtaskError(format!("{SIGNING_KEY} must name the file of minisign's secret key"))
    })
}

/// Returns the step that signs the checksums of a folder with minisign. The signature is `SHA256SUMS.minisig` beside them.
fn signature_step(key: &Path, folder: &Path) -> XtaskStep {
    let (key, sums) = (key.to_string_lossy(), folder.join("SHA256SUMS"));
    let sign = ["-S", "-s", &*key, "-m", &*sums.to_string_lossy()];
    XtaskStep::new("signature", "minisign", &sign)
}

/// Packs the programs with man pages, completions and licences. Arguments: stage, output, version, epoch.
const ARCHIVE: &str = r#"
name=fairgate-$3-$(uname -m)-linux-gnu
tar --create --directory "$1" --sort=name --mtime=@"$4" --owner=0 --group=0 --numeric-owner --format=gnu \
    --transform "s,^,$name/," bin man completions doc | gzip --no-name --best > "$2/$name.tar.gz"
"#;

/// Builds both images on the base that `FAIRGATE_IMAGE_BASE` names, and packs each as an OCI archive. buildah's own archives
/// have the time of their making. Arguments: stage, output, version, epoch.
const IMAGES: &str = r#"
tag=$(printf %s "$3" | tr + -)
for image in fairgate fairgate-sim; do
    buildah bud --isolation chroot --format docker --layers=false --timestamp "$4" --target "${image#fairgate-}" \
        --build-arg BASE="${FAIRGATE_IMAGE_BASE:-debian:bookworm-slim}" --tag "$image:$tag" -f packaging/Containerfile "$1/image"
    layout=$(mktemp -d)
    buildah push "$image:$tag" "oci:$layout:$image:$tag"
    tar --create --directory "$layout" --sort=name --mtime=@"$4" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu \
        --file "$2/$image-$3-image.tar" blobs index.json oci-layout
    rm -r "$layout"
done
"#;

/// Packs the chart as `helm package` does, with the release's version. Arguments: chart, output, version, epoch.
const CHART: &str = r#"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -RL "$1" "$work/fairgate"
sed -i "s/^version: .*/version: $3/; s/^appVersion: .*/appVersion: \"$(printf %s "$3" | tr + -)\"/" "$work/fairgate/Chart.yaml"
tar --create --directory "$work" --sort=name --mtime=@"$4" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu fairgate \
    | gzip --no-name --best > "$2/fairgate-chart-$3.tgz"
"#;

/// Lists all dependencies of the programs with their licences. Argument: output.
const LICENCES: &str = r#"
cargo tree --locked --edges normal,build --prefix none --format '{p} {l}' -p fairgate -p fairgate-sim --features fairgate/jemalloc \
    | sed 's/ (\/[^)]*)//; s/ (\*)$//; /^$/d' | LC_ALL=C sort -u > "$1/licences.txt"
cp LICENSE-APACHE LICENSE-MIT "$1"
"#;

/// Returns the step that makes a Debian package of the staged files.
fn debian_package(root: &Path, output: &str, version: &str) -> XtaskStep {
    let tool = tools_folder(root).join("bin/cargo-deb").to_string_lossy().into_owned();
    let args = ["--no-build", "--no-strip", "--package", "fairgate", "--deb-version", version];
    XtaskStep::new("Debian package", &tool, &[&args[..], &["--output", output]].concat())
}

/// Returns the step that builds programs without a trace of this machine's paths.
fn reproducible_build(root: &Path, to: &Path, programs: &[&str], release: &Release) -> XtaskStep {
    let (to, manifest) = (to.to_string_lossy(), root.join("Cargo.toml"));
    let manifest = manifest.to_string_lossy();
    let build = ["build", "--locked", "--profile", PROFILE_OF_PACKAGES, "--target-dir", &*to];
    let mut words = [&build[..], &["--manifest-path", &*manifest]].concat();
    words.extend(programs.iter().flat_map(|name| ["--package", *name]));
    if programs.contains(&"fairgate") {
        words.extend(["--features", FEATURES_OF_PACKAGES]);
    }
    let root = root.to_string_lossy();
    let home = cargo_home();
    let rust = format!("--remap-path-prefix={root}=/fairgate --remap-path-prefix={home}=/cargo");
    let c = format!(
        "-ffile-prefix-map={to}=/target -ffile-prefix-map={root}=/fairgate -ffile-prefix-map={home}=/cargo"
    );
    cargo(&format!("build {}", programs.join(", ")), &words)
        .env("SOURCE_DATE_EPOCH", &release.epoch)
        .env("RUSTFLAGS", &rust)
        .env("CFLAGS", &c)
        .env("CARGO_INCREMENTAL", "0")
}

fn cargo_home() -> String {
    let home = || env::var("HOME").map(|home| format!("{home}/.cargo"));
    env::var("CARGO_HOME").or_else(|_| home()).unwrap_or_else(|_| "/nonexistent".into())
}

/// Returns the steps that build programs of the last commit twice, from copies in two folders, and compare them.
pub(crate) fn verify_steps(root: &Path, programs: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let programs = if programs.is_empty() { &PROGRAMS } else { programs };
    if let Some(unknown) = programs.iter().find(|name| !PROGRAMS.contains(name)) {
        let known = PROGRAMS.join(" and ");
        return Err(XtaskError(format!("{unknown} is not published; {known} are")));
    }
    let release = Release::of(root)?;
    let work = target(root).join("verify");
    let copies = ["one", "another/place"].map(|name| work.join(name));
    let mut steps = Vec::new();
    for copy in &copies {
        let script = "rm -rf \"$1\" && mkdir -p \"$1\" && git archive HEAD | tar --extract --directory \"$1\"";
        let words = ["-euc", script, "sh", &*copy.to_string_lossy()];
        steps.push(XtaskStep::new("copy of the commit", "sh", &words));
        steps.push(reproducible_build(copy, &copy.join("target"), programs, &release));
    }
    for program in programs {
        let file = |copy: &PathBuf| {
            let folder = copy.join("target").join(PROFILE_OF_PACKAGES);
            folder.join(program).to_string_lossy().into_owned()
        };
        let [one, other] = [file(&copies[0]), file(&copies[1])];
        steps.push(XtaskStep::new(&format!("{program} is the same twice"), "cmp", &[&one, &other]));
        let no_paths = "! grep --quiet --fixed-strings --text -e \"$2\" -e \"$3\" \"$1\"";
        let work = work.to_string_lossy();
        let words = ["-euc", no_paths, "sh", &one, &work, &cargo_home()];
        steps.push(XtaskStep::new(
            &format!("{program} names no path of this machine"),
            "sh",
            &words,
        ));
    }
    Ok(steps)
}

/// Returns the steps of `cargo xtask site`: builds the program for the generated pages, then the book in
/// `target/site/book`.
pub(crate) fn site_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut venv = venv(root, "packages", "tests/packages/requirements.txt")?;
    let mut steps = venv.take_steps();
    steps.extend(need_tool(root, &MDBOOK));
    steps.push(cargo("fairgate for the site", &["build", "--locked", "-p", "fairgate"]));
    let program = target(root).join("debug/fairgate").to_string_lossy().into_owned();
    let mdbook = tools_folder(root).join("bin/mdbook").to_string_lossy().into_owned();
    let site = root.join("target/site").to_string_lossy().into_owned();
    let make = ["packaging/site/make_site.py", "--fairgate", &program, "--mdbook", &mdbook, &site];
    steps.push(venv.step("site", "python", &make));
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
    }

    #[test]
    fn a_version_is_that_of_the_tag_or_names_the_commit() {
        assert_eq!(version("v1.2.3\nv1.2.3-rc1", "0.1.0", "abc"), "1.2.3");
        assert_eq!(version("", "0.1.0", "0123456789ab"), "0.1.0+0123456789ab");
    }

    #[test]
    fn a_tree_with_changes_is_refused() {
        assert_eq!(refuse_changes(""), Ok(()));
        let refused = refuse_changes(" M Cargo.toml\n?? new").expect_err("it has changes");
        assert!(refused.0.contains("M Cargo.toml"), "{refused}");
    }

    #[test]
    fn what_is_published_is_listed_after_everything_is_there() {
        let release =
            Release { version: "1.2.3".into(), epoch: "7".into(), date: "2026-11-18".into() };
        let steps = format!("{:?}", dist_steps(root(), &release).expect("the lists are there"));
        let at = |text: &str| steps.find(text).unwrap_or_else(|| panic!("{text} in {steps}"));
        for made in ["stage.sh", "cargo-deb", "buildah bud", "maturin", "cargo tree"] {
            assert!(at(made) < at("sha256sum"), "{made}");
        }
        assert!(steps.contains("SOURCE_DATE_EPOCH"), "{steps}");
    }

    #[test]
    fn only_what_is_published_is_verified() {
        assert!(verify_steps(root(), &["fairgate-sim"]).is_ok_and(|steps| steps.len() == 6));
        assert!(verify_steps(root(), &["xtask"]).is_err());
        assert!(steps(root(), &["--fast"]).is_err());
    }
}

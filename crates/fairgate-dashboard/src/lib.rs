#![doc = include_str!("../README.md")]

mod files;
mod headers;

use std::io::Write as _;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;

pub use self::headers::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, SECURITY_HEADERS};

use self::files::FILES;

/// Number of bytes of the content's hash in an ETag.
const ETAG_BYTES: usize = 8;

/// File of the operators' page, whose address is `/`.
const OPERATORS_PAGE: &str = "index.html";

/// Address of the tenants' page, and its file.
const TENANTS_PAGE: (&str, &str) = ("me", "me.html");

/// Prefix of the addresses of all files but the two pages.
const ASSETS_PREFIX: &str = "assets/";

/// All files, gzipped at the first use.
static ASSETS: LazyLock<Vec<DashboardAsset>> =
    LazyLock::new(|| FILES.iter().map(|(path, bytes)| DashboardAsset::new(path, bytes)).collect());

/// One file of the pages.
#[derive(Debug)]
pub struct DashboardAsset {
    /// Path within the folder `ui`, such as `core/router.js`.
    pub path: &'static str,
    /// Value of the header `content-type`.
    pub content_type: &'static str,
    /// The file as it is in the repository.
    pub bytes: &'static [u8],
    /// The file as gzip, for browsers that accept it.
    pub gzip: Box<[u8]>,
    /// Value of the header `etag`, with its quotes. It depends on the content alone, so all gateways of one version
    /// send the same one.
    pub etag: String,
}

impl DashboardAsset {
    fn new(path: &'static str, bytes: &'static [u8]) -> Self {
        let hash = blake3::hash(bytes);
        let hex: String =
            hash.as_bytes()[..ETAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            path,
            content_type: content_type(path),
            bytes,
            gzip: gzip(bytes),
            etag: format!("\"{hex}\""),
        }
    }
}

/// Returns the file at the path of a URL, with or without its first slash. `/` is the operators'
/// page, `/me` the tenants' page, and `/assets/…` has the files that these two pages load.
pub fn asset(url_path: &str) -> Option<&'static DashboardAsset> {
    let path = url_path.strip_prefix('/').unwrap_or(url_path);
    let file = match path {
        "" => OPERATORS_PAGE,
        _ if path == TENANTS_PAGE.0 => TENANTS_PAGE.1,
        _ => path.strip_prefix(ASSETS_PREFIX).filter(|file| !is_page(file))?,
    };
    ASSETS.iter().find(|asset| asset.path == file)
}

/// Iterates over the paths that [`asset`] knows, each with its first slash.
pub fn url_paths() -> impl Iterator<Item = String> {
    let files = FILES.iter().map(|(path, _)| *path).filter(|path| !is_page(path));
    let assets = files.map(|path| format!("/{ASSETS_PREFIX}{path}"));
    ["/".to_owned(), format!("/{}", TENANTS_PAGE.0)].into_iter().chain(assets)
}

/// Returns true if the file is one of the two pages, which have addresses of their own.
fn is_page(path: &str) -> bool {
    path == OPERATORS_PAGE || path == TENANTS_PAGE.1
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn gzip(bytes: &[u8]) -> Box<[u8]> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail; an empty file would be seen by the test below.
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_default().into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read as _;
    use std::path::{Path, PathBuf};

    use super::*;

    fn ui() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
    }

    fn files_below(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() {
                files_below(&path, found);
            } else {
                let name = path.strip_prefix(ui()).expect("below ui");
                found.insert(name.to_str().expect("UTF-8").to_owned());
            }
        }
    }

    /// A file that is missing in the table would only cause a 404 in the browser.
    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let mut there = BTreeSet::new();
        files_below(&ui(), &mut there);
        // Types for the checker and the list of hashes are no part of the pages.
        there.retain(|path| !path.ends_with(".d.ts") && !path.ends_with(".sha256"));
        let embedded: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(embedded, there);
    }

    #[test]
    fn every_path_leads_to_its_file() {
        for path in url_paths() {
            let asset = asset(&path).unwrap_or_else(|| panic!("{path} leads nowhere"));
            assert!(!asset.bytes.is_empty(), "{path} is empty");
            assert_eq!(super::asset(&path[1..]).map(|it| it.path), Some(asset.path));
        }
        assert_eq!(url_paths().count(), FILES.len());
        for path in [
            "/index.html",
            "/assets",
            "/assets/",
            "/assets/../Cargo.toml",
            "/me/",
            "/assets/me.html",
            "//",
        ] {
            assert!(asset(path).is_none(), "{path} is no address of a file");
        }
    }

    #[test]
    fn a_gzipped_file_is_the_file() {
        for asset in ASSETS.iter() {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&*asset.gzip).read_to_end(&mut plain).expect("gzip");
            assert_eq!(plain, asset.bytes, "{}", asset.path);
            assert!(asset.etag.len() == 2 + 2 * ETAG_BYTES, "{}", asset.etag);
        }
    }

    /// The program grows by the size of the files. The gzipped copies are made when they are first
    /// requested.
    #[test]
    fn the_program_grows_by_less_than_two_megabytes() {
        let bytes: usize = FILES.iter().map(|(path, bytes)| path.len() + bytes.len()).sum();
        assert!((100_000..2_000_000).contains(&bytes), "{bytes} bytes");
    }

    /// Different content needs different ETags, so that browsers fetch it again. Equal content must
    /// not have two ETags.
    #[test]
    fn an_etag_follows_the_content() {
        let a = DashboardAsset::new("a.js", b"1");
        assert_eq!(a.etag, DashboardAsset::new("b.css", b"1").etag);
        assert_ne!(a.etag, DashboardAsset::new("a.js", b"2").etag);
    }

    /// Every file that is loaded by address must be embedded: every import, and every reference of
    /// the two pages.
    #[test]
    fn every_import_is_embedded() {
        for (path, bytes) in FILES.iter().filter(|(path, _)| path.ends_with(".js")) {
            let text = std::str::from_utf8(bytes).expect("UTF-8");
            for quoted in imports(text) {
                assert!(
                    quoted.starts_with('.'),
                    "{path} imports {quoted:?}, which needs a build step"
                );
                let target = resolve(path, quoted);
                assert!(FILES.iter().any(|(file, _)| *file == target), "{path} imports {target}");
            }
        }
        for page in [OPERATORS_PAGE, TENANTS_PAGE.1] {
            let html = FILES.iter().find(|(path, _)| *path == page).expect("the page").1;
            let html = std::str::from_utf8(html).expect("UTF-8");
            let addresses = html.split('"').filter(|part| part.starts_with('/'));
            for address in addresses {
                assert!(asset(address).is_some(), "{page} names {address}");
            }
        }
    }

    /// Returns the addresses of `import … from "…"`, `import "…"` and `import("…")`.
    fn imports(text: &str) -> Vec<&str> {
        let pieces = text.split(['"', '\'']).collect::<Vec<_>>();
        let before_is_import = |before: &str| {
            let before = before.trim_end();
            ["from", "import", "import("].iter().any(|word| before.ends_with(word))
        };
        let pairs = pieces.windows(2).filter(|pair| before_is_import(pair[0]));
        // An option of the pages is called "from" too; no address has a space.
        pairs.map(|pair| pair[1]).filter(|quoted| !quoted.contains(' ')).collect()
    }

    fn resolve(from: &str, import: &str) -> String {
        let mut folders: Vec<&str> = from.split('/').collect();
        folders.pop();
        for part in import.split('/') {
            match part {
                "." => {}
                ".." => _ = folders.pop(),
                name => folders.push(name),
            }
        }
        folders.join("/")
    }

    /// Under our policy, a browser refuses inline styles and scripts without a visible message.
    #[test]
    fn no_file_of_ours_has_inline_styles_or_scripts() {
        for (path, bytes) in FILES.iter().filter(|(path, _)| !path.starts_with("vendor/")) {
            let text = String::from_utf8_lossy(bytes);
            if path.ends_with(".svg") || path.ends_with(".css") {
                continue;
            }
            for forbidden in [
                " style=\"",
                " style=${",
                "<style",
                "unsafeHTML",
                "innerHTML",
                "javascript:",
                " onclick=",
            ] {
                assert!(!text.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}

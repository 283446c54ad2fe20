//! The bytes of images. Messages hold references only (MSG-11); who sends one has to find its bytes.

use super::Outgoing;
use crate::json::Value;
use crate::llm::Failure;
use base64::Engine;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Finds the bytes of an attachment by its id; `None` if they are not there.
pub type ReadImage = Rc<dyn Fn(&str) -> Option<Vec<u8>>>;

/// Finds the bytes of an attachment by its id, for example `sha256:9f86…`.
#[derive(Clone)]
pub enum ImageSource {
    /// A folder that holds each attachment under the hexadecimal part of its id.
    Folder(PathBuf),
    /// A function. It must not block for long.
    Function(ReadImage),
}

impl ImageSource {
    fn read(&self, id: &str) -> Option<Vec<u8>> {
        match self {
            ImageSource::Folder(folder) => read_file(folder, id),
            ImageSource::Function(find) => find(id),
        }
    }
}

/// Only a hash is a file name here: a reference from a log must not reach other files.
fn read_file(folder: &Path, id: &str) -> Option<Vec<u8>> {
    let hash = id.strip_prefix("sha256:")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| std::fs::read(folder.join(hash)).ok()).flatten()
}

/// An image as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// For example `image/png`.
    pub media_type: String,
    /// The bytes, in base64.
    pub base64: String,
    /// What is said before the image, so that it can be named later (MSG-25).
    pub handle: String,
}

impl Outgoing<'_> {
    /// Whether images are sent: the model takes them and somebody has their bytes. Otherwise each is a placeholder text.
    pub fn takes_images(&self) -> bool {
        let declared = self.info.and_then(|info| info.input_modalities.as_ref());
        self.images.is_some() && declared.is_some_and(|kinds| kinds.iter().any(|kind| kind == "image"))
    }

    /// The image of a block, if images are sent; `None` for another block, or where a placeholder is to stand. Fails
    /// when the bytes are missing: an answer about an image that was not sent would be a guess.
    pub fn image(&self, block: &Value) -> Result<Option<Image>, Failure> {
        let is_image = block.get("type").and_then(Value::as_str) == Some("image");
        let Some(source) = self.images.filter(|_| is_image && self.takes_images()) else { return Ok(None) };
        let attachment = block.get("attachment");
        let text = |key: &str| attachment.and_then(|attachment| attachment.get(key)).and_then(Value::as_str);
        let (Some(id), Some(media_type)) = (text("attachmentId"), text("mediaType")) else {
            let message = "an image block needs `attachment` with `attachmentId` and `mediaType`";
            return Err(Failure::new("UNSUPPORTED_CONTENT", message));
        };
        let bytes = source.read(id).ok_or_else(|| {
            let message = format!("the bytes of image {id} were not found; store the attachment or remove the image");
            Failure::new("UNSUPPORTED_CONTENT", message)
        })?;
        let size = |key: &str| attachment.and_then(|attachment| attachment.get(key)).and_then(Value::as_u64);
        let handle = match (size("width"), size("height")) {
            (Some(width), Some(height)) => format!("[image {id}, {width}x{height}]"),
            _ => format!("[image {id}]"),
        };
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        Ok(Some(Image { media_type: media_type.to_owned(), base64, handle }))
    }
}

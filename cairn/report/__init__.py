"""Reports: pictures, galleries, the page."""

"""``python -m exporter.docs``"""

import sys

from exporter.docs.pages import main

sys.exit(main())

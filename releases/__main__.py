import sys

from releases.files import main

sys.exit(main())
